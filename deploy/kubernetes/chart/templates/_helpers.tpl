{{/* Labels of everything; of pods of a component: (list . "watch"). */}}
{{- define "compactor.labels" -}}
app.kubernetes.io/name: lsm-compactor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: lsm-compactor
{{- end }}

{{- define "compactor.selector" -}}
app.kubernetes.io/name: lsm-compactor
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "compactor.image" -}}
{{- $image := .Values.image -}}
{{ required "image.repository: name the image that you have built by deploy/docker/Dockerfile and pushed" $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Memory of a worker in MiB, as `local_worker` of deploy/kubernetes/resources.py computes it. */}}
{{- define "compactor.workerMiB" -}}
{{- $sizes := .Files.Get "sizes.yaml" | fromYaml -}}
{{- $tasks := mul (int64 .Values.workers.tasks) (add .Values.workers.memoryLimitMiB $sizes.workerOverheadMiB) -}}
{{- $memory := add $sizes.heapMiB $sizes.jvmOverheadMiB $sizes.driverPythonMiB $tasks -}}
{{- mul (div (sub (add $memory $sizes.roundMiB) 1) $sizes.roundMiB) $sizes.roundMiB -}}
{{- end }}

{{/* The file of `watch --config`. The memory of a task is the pod's affair, and the vacuum that of its own job. */}}
{{- define "compactor.fleet" -}}
{{- if not .Values.fleet.tables }}
{{- fail "fleet.tables: name the tables to keep compacted, such as [{at: \"s3://my-bucket/logs\"}]: docs/how-to/fleets.md" }}
{{- end }}
{{- $fleet := deepCopy .Values.fleet }}
{{- $defaults := $fleet.defaults | default dict }}
{{- range $entry := append $fleet.tables $defaults }}
{{- if hasKey ($entry.settings | default dict) "memory_limit_bytes" }}
{{- fail "fleet: memory_limit_bytes: say it by workers.memoryLimitMiB, by which the pods are sized" }}
{{- end }}
{{- if and $.Values.vacuum.enabled (not (kindIs "invalid" $entry.vacuum)) }}
{{- fail "fleet: vacuum: workers may not delete: say when by vacuum.schedule; or set vacuum.enabled to false, and let the workers' role delete" }}
{{- end }}
{{- with $entry.publish }}
{{- if ne .as "parquet" }}
{{- fail (printf "fleet: publish: as: %s: the image lacks the packages for it: publish as parquet, or run `compactor publish` elsewhere, with lsm-compactor[publish]" .as) }}
{{- end }}
{{- end }}
{{- end }}
{{- $settings := merge (dict "memory_limit_bytes" (printf "%dMiB" (int .Values.workers.memoryLimitMiB))) ($defaults.settings | default dict) }}
{{- $_ := set $fleet "defaults" (merge (dict "settings" $settings) $defaults) }}
{{- toYaml $fleet }}
{{- end }}

{{/* The path of the fleet's file, by which a Pushgateway tells releases apart. */}}
{{- define "compactor.file" -}}
/etc/compactor/{{ .Release.Namespace }}.{{ .Release.Name }}.yaml
{{- end }}

{{/* Values of the documentation are nobody's. The longest name is that of the vacuum's CronJob, of 52 characters. */}}
{{- define "compactor.check" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$" .Release.Name) }}
{{- fail (printf "release name %q: use at most 45 small letters, digits and hyphens, and begin with a letter" .Release.Name) }}
{{- end }}
{{- if has .Release.Name (list "true" "false" "yes" "no" "on" "off" "null" "y" "n") }}
{{- fail (printf "release name %q: YAML takes it for a value: choose another" .Release.Name) }}
{{- end }}
{{- range $option := .Values.workers.options }}
{{- range $own := list "config" "master" "max-tasks" "spool-directory" "spool-limit" "memory-limit" "drain" "metrics-port" "metrics-address" "log-format" }}
{{- if regexMatch (printf "^--%s([= ]|$)" $own) $option }}
{{- fail (printf "workers.options: %s: the chart says --%s itself, by other values" $option $own) }}
{{- end }}
{{- end }}
{{- end }}
{{- $values := toJson .Values }}
{{- range $placeholder := list "111122223333" "444455556666" "registry.example.com" "example-bucket" "REGISTRY/" }}
{{- if contains $placeholder $values }}
{{- fail (printf "%s is a placeholder of the documentation: put your own value in its place" $placeholder) }}
{{- end }}
{{- end }}
{{- if and .Values.s3.ca.configMap .Values.s3.ca.secret }}
{{- fail "s3.ca: give configMap or secret, not both" }}
{{- end }}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}
{{- fail "autoscaling: minReplicas is more than maxReplicas" }}
{{- end }}
{{- end }}

{{/* The port of a URL: (list URL). */}}
{{- define "compactor.port" -}}
{{- $url := urlParse (index . 0) -}}
{{- $port := regexFind ":[0-9]+$" $url.host -}}
{{- if $port }}{{ trimPrefix ":" $port }}{{ else if eq $url.scheme "https" }}443{{ else }}80{{ end }}
{{- end }}

{{- define "compactor.podSecurity" -}}
runAsNonRoot: true
runAsUser: 185
runAsGroup: 185
fsGroup: 185
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "compactor.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "compactor.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Mounts and volumes of all pods. */}}
{{- define "compactor.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: fleet, mountPath: /etc/compactor, readOnly: true}
{{- if or .Values.s3.ca.configMap .Values.s3.ca.secret }}
- {name: ca, mountPath: /etc/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "compactor.volumes" -}}
{{- $sizes := .Files.Get "sizes.yaml" | fromYaml -}}
- name: tmp
  emptyDir: {sizeLimit: {{ $sizes.tmpMiB }}Mi}
- name: fleet
  configMap: {name: {{ .Release.Name }}-fleet}
{{- with .Values.s3.ca.configMap }}
- name: ca
  configMap: {name: {{ . | quote }}}
{{- end }}
{{- with .Values.s3.ca.secret }}
- name: ca
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Disk of a container beside volumes that are claimed. */}}
{{- define "compactor.diskMiB" -}}
{{- $sizes := .Files.Get "sizes.yaml" | fromYaml -}}
{{- add $sizes.tmpMiB $sizes.containerMiB -}}
{{- end }}
