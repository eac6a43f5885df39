"""Creates a volume and a claim, watches until the claim is bound, changes it, and deletes both."""

from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()
metadata = client.V1ObjectMeta(name="from-python")
core.create_persistent_volume(
    client.V1PersistentVolume(
        metadata=metadata,
        spec=client.V1PersistentVolumeSpec(
            capacity={"storage": "5Gi"},
            access_modes=["ReadWriteOnce"],
            storage_class_name="",
            host_path=client.V1HostPathVolumeSource(path="/srv/from-python"),
        ),
    )
)
core.create_namespaced_persistent_volume_claim(
    "default",
    client.V1PersistentVolumeClaim(
        metadata=metadata,
        spec=client.V1PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name="",
            resources=client.V1VolumeResourceRequirements(requests={"storage": "4Gi"}),
        ),
    ),
)
claims = watch.Watch().stream(core.list_namespaced_persistent_volume_claim, "default", timeout_seconds=60)
for event in claims:
    claim = event["object"]
    if claim.status.phase == "Bound":
        print(claim.metadata.name, "is bound to", claim.spec.volume_name)
        break
change = {"metadata": {"labels": {"team": "blue"}}}
claim = core.patch_namespaced_persistent_volume_claim("from-python", "default", change)
print("team", claim.metadata.labels["team"])
try:
    core.read_persistent_volume("other")
except client.ApiException as error:
    print(error.status, error.reason)
core.delete_namespaced_persistent_volume_claim("from-python", "default")
core.delete_persistent_volume("from-python")
classes = client.StorageV1Api().list_storage_class()
print("classes", [storage_class.metadata.name for storage_class in classes.items])
