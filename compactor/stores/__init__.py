"""Object storage: one protocol, implemented by a local folder, by S3, and by Google's and Azure's stores.

`base` defines the protocol: a **store** holds objects under **keys**, `create` writes one only if absent, an
**upload** streams one that becomes visible as a whole, and a **stream** is the body of one GET.

open      returns the store at an address; other distributions may add schemes
local     a folder; local_files makes links and renames durable
s3        S3 by boto3, which retries requests with backoff; s3_answers maps responses to errors, s3_upload
          sends the parts of an upload, s3_encryption sets headers
obstore_store  Google Cloud Storage and Azure Blob Storage by obstore, an extra; obstore_services has their
          addresses, obstore_answers maps errors, obstore_upload hands over the parts of an upload
answers   errors of requests; upload_parts fills the parts of uploads; server_clock tells a server's time
resume    continues a GET after its connection broke
metered   counts calls and requests
user_files  lets users' files be objects
parts     passes parts of a task's rows to the driver; conditional_writes proves that `create` is honoured
"""
