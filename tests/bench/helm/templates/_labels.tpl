{{- define "labels" -}}
app.kubernetes.io/name: {{ .name | quote }}
app.kubernetes.io/instance: {{ .release | quote }}
app.kubernetes.io/managed-by: bench
{{- end -}}
