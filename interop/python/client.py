"""What programs do with the Python client, against the cluster of a kubeconfig: python client.py KUBECONFIG.

Every check is a function; the first that fails ends the run. Objects are in a namespace of its own.
"""

import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

NAMESPACE = "python-client"
PATIENCE_SECONDS = 60
IMAGE = "karve/builtin"


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def refused(status, reason, call, *arguments, **options):
    """The call must fail in exactly this way."""
    try:
        call(*arguments, **options)
    except ApiException as error:
        expect(error.status == status, f"status {error.status} in place of {status}: {error.body}")
        expect(f'"{reason}"' in error.body, f"{reason} is not in {error.body}")
        return
    raise AssertionError(f"{call.__name__} was not refused")


def until(what, ask):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_SECONDS} s for {what}")


def config_map(name, data, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def knows_the_server():
    version = client.VersionApi().get_code()
    expect((version.major, version.minor) == ("1", "36"), f"the server is {version.git_version}")
    groups = {group.name for group in client.ApisApi().get_api_versions().groups}
    expect({"apps", "batch", "rbac.authorization.k8s.io"} <= groups, f"groups are {groups}")
    nodes = client.CoreV1Api().list_node().items
    expect(len(nodes) == 1 and nodes[0].status.node_info.kubelet_version, "there is no node")


def writes_and_reads():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", {"a": "1"}))
    expect(made.metadata.uid and made.metadata.creation_timestamp, f"made {made.metadata}")
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, config_map("one", {}))
    refused(422, "Invalid", core.create_namespaced_config_map, NAMESPACE, config_map("Not_A_Name", {}))
    refused(404, "NotFound", core.read_namespaced_config_map, "none", NAMESPACE)
    stale = core.read_namespaced_config_map("one", NAMESPACE)
    stale.data["b"] = "2"
    fresh = core.replace_namespaced_config_map("one", NAMESPACE, stale)
    expect(fresh.data == {"a": "1", "b": "2"}, f"replaced {fresh.data}")
    refused(409, "Conflict", core.replace_namespaced_config_map, "one", NAMESPACE, stale)
    dry = core.create_namespaced_config_map(NAMESPACE, config_map("dry", {}), dry_run="All")
    expect(dry.metadata.uid, "a dry run answers as if")
    refused(404, "NotFound", core.read_namespaced_config_map, "dry", NAMESPACE)


def patches():
    core = client.CoreV1Api()
    core.create_namespaced_config_map(NAMESPACE, config_map("patched", {"a": "1", "b": "2"}))
    kinds = {
        "application/merge-patch+json": ({"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        "application/strategic-merge-patch+json": ({"data": {"d": "4"}}, {"b": "2", "c": "3", "d": "4"}),
        "application/json-patch+json": ([{"op": "remove", "path": "/data/b"}], {"c": "3", "d": "4"}),
    }
    for kind, (patch, wanted) in kinds.items():
        now = core.patch_namespaced_config_map("patched", NAMESPACE, patch, _content_type=kind)
        expect(now.data == wanted, f"{kind} made {now.data}")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}, "data": {"e": "5"}}
    apply = {"field_manager": "python", "_content_type": "application/apply-patch+yaml"}
    now = core.patch_namespaced_config_map("patched", NAMESPACE, applied, **apply)
    expect(now.data == {"c": "3", "d": "4", "e": "5"}, f"apply made {now.data}")
    applied["data"] = {"c": "6"}
    refused(409, "Conflict", core.patch_namespaced_config_map, "patched", NAMESPACE, applied, **apply)
    now = core.patch_namespaced_config_map("patched", NAMESPACE, applied, force=True, **apply)
    expect(now.data == {"c": "6", "d": "4"}, f"the forced apply made {now.data}")


def lists():
    core = client.CoreV1Api()
    for number in range(7):
        labels = {"parity": "odd" if number % 2 else "even", "list": "yes"}
        core.create_namespaced_config_map(NAMESPACE, config_map(f"item-{number}", {}, labels))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="list", limit=3, _continue=token)
        expect(len(page.items) <= 3, f"a page has {len(page.items)}")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    expect(names == [f"item-{number}" for number in range(7)], f"pages have {names}")
    odd = core.list_namespaced_config_map(NAMESPACE, label_selector="parity in (odd)").items
    expect(len(odd) == 3, f"{len(odd)} are odd")
    one = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=item-4").items
    expect([item.metadata.name for item in one] == ["item-4"], "a field selects one")


def watches():
    core = client.CoreV1Api()
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen = []

    def change():
        core.create_namespaced_config_map(NAMESPACE, config_map("seen", {}, {"watch": "yes"}))
        core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "1"}})
        core.delete_namespaced_config_map("seen", NAMESPACE)

    thread = threading.Thread(target=change)
    thread.start()
    watching = watch.Watch()
    options = {"label_selector": "watch=yes", "resource_version": since, "timeout_seconds": PATIENCE_SECONDS}
    for event in watching.stream(core.list_namespaced_config_map, NAMESPACE, **options):
        seen.append((event["type"], event["object"].data))
        if event["type"] == "DELETED":
            watching.stop()
    thread.join()
    expect(seen == [("ADDED", None), ("MODIFIED", {"a": "1"}), ("DELETED", {"a": "1"})], f"seen were {seen}")
    begun = time.monotonic()
    for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, label_selector="no", timeout_seconds=1):
        raise AssertionError(f"nothing should be seen: {event}")
    expect(time.monotonic() - begun < 10, "a watch ends in its time")


def runs_pods():
    apps, core = client.AppsV1Api(), client.CoreV1Api()
    container = client.V1Container(name="web", image=IMAGE, args=["serve", "--port", "8080"])
    labels = {"app": "web"}
    deployment = client.V1Deployment(
        metadata=client.V1ObjectMeta(name="web"),
        spec=client.V1DeploymentSpec(
            replicas=1,
            selector=client.V1LabelSelector(match_labels=labels),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels=labels),
                spec=client.V1PodSpec(containers=[container], termination_grace_period_seconds=1),
            ),
        ),
    )
    apps.create_namespaced_deployment(NAMESPACE, deployment)
    apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 2}})
    until("two pods", lambda: apps.read_namespaced_deployment("web", NAMESPACE).status.available_replicas == 2)
    pod = core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items[0].metadata.name
    until("the log", lambda: "8080" in core.read_namespaced_pod_log(pod, NAMESPACE))
    attach = {"stdout": True, "stderr": True, "stdin": False, "tty": False}
    said = stream(core.connect_get_namespaced_pod_exec, pod, NAMESPACE, command=["/karve", "--version"], **attach)
    expect(said.startswith("karve"), f"the command said {said!r}")
    failing = stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        NAMESPACE,
        command=["/karve", "no-such-command"],
        _preload_content=False,
        **attach,
    )
    failing.run_forever(timeout=PATIENCE_SECONDS)
    expect(failing.returncode == 2, f"the command ended with {failing.returncode}")
    apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Foreground")
    until("the pods to go", lambda: not core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items)
    until("the deployment to go", lambda: not apps.list_namespaced_deployment(NAMESPACE).items)
    refused(404, "NotFound", apps.read_namespaced_deployment, "web", NAMESPACE)


def knows_new_kinds():
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.python.example.com"},
        "spec": {
            "group": "python.example.com",
            "names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }
    definitions = client.ApiextensionsV1Api()
    definitions.create_custom_resource_definition(definition)
    until(
        "the kind to be established",
        lambda: any(
            condition.type == "Established" and condition.status == "True"
            for condition in definitions.read_custom_resource_definition("boats.python.example.com").status.conditions
            or []
        ),
    )
    boats = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="python.example.com/v1", kind="Boat")
    boat = {"apiVersion": "python.example.com/v1", "kind": "Boat", "metadata": {"name": "karve"}, "spec": {"size": 3}}
    boats.create(body=boat, namespace=NAMESPACE)
    expect(boats.get(name="karve", namespace=NAMESPACE).spec.size == 3, "the boat has its size")
    boat["metadata"]["name"], boat["spec"]["size"] = "none", 0
    refused(422, "Invalid", client.CustomObjectsApi().create_namespaced_custom_object,
            "python.example.com", "v1", NAMESPACE, "boats", boat)
    boats.delete(name="karve", namespace=NAMESPACE)
    definitions.delete_custom_resource_definition("boats.python.example.com")


CHECKS = [knows_the_server, writes_and_reads, patches, lists, watches, runs_pods, knows_new_kinds]


def main():
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    until("the default account", lambda: core.list_namespaced_service_account(NAMESPACE).items)
    for check in CHECKS:
        begun = time.monotonic()
        check()
        print(f"   {check.__name__.replace('_', ' ')} ({time.monotonic() - begun:.2f} s)", flush=True)
    core.delete_namespace(NAMESPACE)
    until("the namespace to go", lambda: all(n.metadata.name != NAMESPACE for n in core.list_namespace().items))


if __name__ == "__main__":
    main()
