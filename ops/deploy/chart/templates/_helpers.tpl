{{/* Labels of a component; takes a list: root, name. */}}
{{- define "skeletonhunter.labels" -}}
{{- $root := index . 0 -}}
{{ include "skeletonhunter.podLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Of pods: none that a new version of the chart changes, or all agents would start again. */}}
{{- define "skeletonhunter.podLabels" -}}
{{ include "skeletonhunter.selector" . }}
app.kubernetes.io/part-of: skeletonhunter
{{- end }}

{{- define "skeletonhunter.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: skeletonhunter
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Scalars and lists of a mapping as TOML: JSON's are TOML's. */}}
{{- define "skeletonhunter.toml" -}}
{{- range $key, $value := . }}
{{ $key | quote }} = {{ $value | toJson }}
{{- end }}
{{- end }}

{{/* The table [kafka] of a role; takes a list: root, role. */}}
{{- define "skeletonhunter.kafka" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $kafka := $root.Values.kafka -}}
{{- $sasl := eq $kafka.authentication "scram-sha-512" -}}
{{- $tls := or $kafka.tls (eq $kafka.authentication "tls") -}}
[kafka]
"bootstrap.servers" = {{ $kafka.bootstrap | toJson }}
cluster = {{ $kafka.cluster | toJson }}
{{- with $kafka.topicPrefix }}
"topic.prefix" = {{ . | toJson }}
{{- end }}
{{- with $kafka.registryUrl }}
"schema.registry.url" = {{ . | toJson }}
{{- end }}
{{- with $kafka.registryUser }}
"schema.registry.user" = {{ . | toJson }}
{{- end }}
{{- if $kafka.registrySecret }}
"schema.registry.password.file" = {{ printf "/etc/registry-user/%s" $kafka.registryKey | toJson }}
{{- end }}
{{- if or $sasl $tls }}
"security.protocol" = {{ printf "%s%s" (ternary "SASL_" "" $sasl) (ternary "SSL" "PLAINTEXT" $tls) | quote }}
{{- end }}
{{- if $sasl }}
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = {{ printf "%s%s" $kafka.userPrefix $role | toJson }}
"sasl.password.file" = {{ printf "/etc/kafka-user/%s" $kafka.passwordKey | toJson }}
{{- end }}
{{- if eq $kafka.authentication "tls" }}
"ssl.certificate.location" = "/etc/kafka-user/user.crt"
"ssl.key.location" = "/etc/kafka-user/user.key"
{{- end }}
{{- if $kafka.caSecret }}
"ssl.ca.location" = {{ printf "/etc/kafka-ca/%s" $kafka.caKey | toJson }}
{{- end }}
{{- include "skeletonhunter.toml" $kafka.options }}
{{- end }}

{{/* Volumes of who logs in to Kafka; takes a list: root, role. */}}
{{- define "skeletonhunter.kafkaVolumes" -}}
{{- $root := index . 0 -}}
{{- $kafka := $root.Values.kafka -}}
{{- if $kafka.caSecret -}}
- name: kafka-ca
  secret:
    secretName: {{ $kafka.caSecret }}
    items: [{key: {{ $kafka.caKey }}, path: {{ $kafka.caKey }}}]
{{- end }}
{{- if $kafka.registrySecret }}
- name: registry-user
  secret:
    secretName: {{ $kafka.registrySecret }}
    # 0440
    defaultMode: 288
    items: [{key: {{ $kafka.registryKey }}, path: {{ $kafka.registryKey }}}]
{{- end }}
{{- if ne $kafka.authentication "none" }}
- name: kafka-user
  secret:
    secretName: {{ $kafka.userPrefix }}{{ index . 1 }}
    # 0440
    defaultMode: 288
{{- end }}
{{- end }}

{{- define "skeletonhunter.kafkaMounts" -}}
{{- if .Values.kafka.caSecret }}
- {name: kafka-ca, mountPath: /etc/kafka-ca, readOnly: true}
{{- end }}
{{- if .Values.kafka.registrySecret }}
- {name: registry-user, mountPath: /etc/registry-user, readOnly: true}
{{- end }}
{{- if ne .Values.kafka.authentication "none" }}
- {name: kafka-user, mountPath: /etc/kafka-user, readOnly: true}
{{- end }}
{{- end }}

{{/* What any process of the image may do: nothing but run, with no file but these volumes' to write. */}}
{{- define "skeletonhunter.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "skeletonhunter.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Volumes and mounts of a process with the settings of a role; take a list: root, role. */}}
{{- define "skeletonhunter.volumes" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- name: settings
  configMap:
    name: {{ $root.Release.Name }}-settings
    items: [{key: {{ $role }}.toml, path: skeletonhunter.toml}]
# Compiled kernels, half a minute's work.
- {name: cache, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- with include "skeletonhunter.kafkaVolumes" (list $root $role) }}
{{ trim . }}
{{- end }}
{{- end }}

{{- define "skeletonhunter.mounts" -}}
- {name: settings, mountPath: /etc/skeletonhunter, readOnly: true}
- {name: cache, mountPath: /home/skeletonhunter/.cache}
- {name: tmp, mountPath: /tmp}
{{- with include "skeletonhunter.kafkaMounts" . }}
{{ trim . }}
{{- end }}
{{- end }}

{{/*
A Deployment and its disruption budget. Takes a dict: root, role, args, and of what a process needs
beside: volumes, mounts (YAML texts), page (a port that serves HTTPS, and its health).
*/}}
{{- define "skeletonhunter.process" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $given := index $root.Values $role -}}
{{- $port := ternary "port: https, scheme: HTTPS" "port: metrics" (hasKey . "page") -}}
{{- $scaled := dig "autoscaling" "enabled" false $given -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $root.Release.Name }}-{{ $role }}
  labels: {{- include "skeletonhunter.labels" (list $root $role) | nindent 4 }}
spec:
  {{- if not $scaled }}
  replicas: {{ $given.replicas }}
  {{- end }}
  strategy:
    type: RollingUpdate
    # A new one is ready, and has what it needs, before an old one goes.
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels: {{- include "skeletonhunter.selector" (list $root $role) | nindent 6 }}
  template:
    metadata:
      labels: {{- include "skeletonhunter.podLabels" (list $root $role) | nindent 8 }}
      annotations:
        # New settings are new pods.
        checksum/settings: {{ include "skeletonhunter.settings" (list $root $role) | sha256sum }}
        {{- if $root.Values.metrics.annotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: "9464"
        {{- end }}
    spec:
      {{- include "skeletonhunter.podSecurity" $root | nindent 6 }}
      # It commits what it has acknowledged before it leaves.
      terminationGracePeriodSeconds: 30
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets: {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      # Two of a kind on two nodes, where there are two.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "skeletonhunter.selector" (list $root $role) | nindent 14 }}
      {{- with $given.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $given.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $role }}
          image: {{ printf "%s:%s" $root.Values.image.repository ($given.imageTag | default $root.Values.image.tag | default $root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: {{ .args | toJson }}
          env:
            - {name: SKELETONHUNTER_CONFIG, value: /etc/skeletonhunter/skeletonhunter.toml}
          ports:
            - {name: metrics, containerPort: 9464}
            {{- with .page }}
            - {name: https, containerPort: {{ . }}}
            {{- end }}
          {{- include "skeletonhunter.containerSecurity" $root | nindent 10 }}
          resources: {{- toYaml $given.resources | nindent 12 }}
          # Nothing listens before the kernels are compiled.
          startupProbe:
            httpGet: {path: /healthz, {{ $port }}}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, {{ $port }}}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          # Topics are read, partitions rebuilt.
          readinessProbe:
            httpGet: {path: /readyz, {{ $port }}}
            periodSeconds: 5
            timeoutSeconds: 5
          volumeMounts:
            {{- include "skeletonhunter.mounts" $root | nindent 12 }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "skeletonhunter.volumes" (list $root $role) | nindent 8 }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- if or $scaled (gt (int $given.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $root.Release.Name }}-{{ $role }}
  labels: {{- include "skeletonhunter.labels" (list $root $role) | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "skeletonhunter.selector" (list $root $role) | nindent 6 }}
{{- end }}
{{- end }}
