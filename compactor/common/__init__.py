"""Small helpers that any room may use. They know nothing of tables, fragments and stores.

process   heap, garbage, c_library set up the allocators; threads, shortage, system_errors distinguish errors
          of the machine (no memory, no thread, a full disk) from errors in the data
output    logs writes log lines; message and setting_keys name settings by **key**, which the command
          line, Python, Spark and YAML replace by their own names; counts and escaping format text for people
values    clock injects time and ids; second_tries tries again, and says how long to wait before that;
          sampling picks items evenly; conversion, ipc set up msgspec and Arrow;
          plain_values turns records into plain dicts; flat_buffers reads tables of untrusted FlatBuffers

Start with `message` and `setting_keys`: every error that names a setting goes through them.
"""
