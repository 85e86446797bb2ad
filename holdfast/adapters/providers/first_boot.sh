# Runs the lifecycle scripts of a new machine, at its first boot only, and reports their
# result in a tag of the instance. The lines before set SOURCE, ENTRY, CLUSTER, GROUP, TYPE, REGION and TAG.

log=${PROVISION_LOG:-/var/log/provision/provisioning.log}
config=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
scripts=${LIFECYCLE_DIR:-/opt/ml/lifecycle}
metadata=${METADATA_URL:-http://169.254.169.254}/latest

mkdir -p "$(dirname "$log")" "$(dirname "$config")" "$scripts"
exec >>"$log" 2>&1
echo START

token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$metadata/api/token")
about() { curl -sf -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1"; }
instance=$(about instance-id)
address=$(about local-ipv4)

report() {
    for _ in 1 2 3 4 5; do
        aws --region "$REGION" ec2 create-tags --resources "$instance" \
            --tags "Key=$TAG,Value=$1" && return
        sleep "${RETRY_S:-10}"
    done
}

failed() {
    echo "[SageMaker] The lifecycle scripts failed"
    report "failed: $1"
    exit 1
}

cat >"$config" <<JSON
{"ClusterConfig": {"ClusterName": "$CLUSTER"},
 "InstanceGroups": [{"Name": "$GROUP", "InstanceType": "$TYPE",
   "Instances": [{"InstanceName": "$GROUP-1", "AgentIpAddress": "$address",
     "CustomerIpAddress": "$address", "InstanceId": "$instance"}]}]}
JSON
export SAGEMAKER_RESOURCE_CONFIG_PATH=$config

echo "[SageMaker] Lifecycle scripts were provided, with S3 uri: [$SOURCE] and entrypoint script: [$ENTRY]"
echo "[SageMaker] Downloading lifecycle scripts"
aws --region "$REGION" s3 cp --recursive "$SOURCE" "$scripts" || failed "cannot download $SOURCE"
echo "[SageMaker] The lifecycle scripts have been downloaded"
cd "$scripts" || failed "no directory $scripts"
chmod +x "$ENTRY" || failed "no script $ENTRY"
"./$ENTRY" || failed "$ENTRY ended with $?"
echo "[SageMaker] The lifecycle scripts succeeded"
report "$DONE"
