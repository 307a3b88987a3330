use crate::{json, kind, yaml};

#[test]
fn a_pod_survives_the_trip_through_its_message() {
    let ty = kind("v1", "Pod");
    let mut pod = yaml(
        "
        apiVersion: v1
        kind: Pod
        metadata: {name: a, labels: {x: z}, creationTimestamp: 2024-01-01T00:00:00Z}
        spec:
          volumes: [{name: v, hostPath: {path: /x}}]
          containers:
          - name: c
            ports: [{containerPort: 80}]
            livenessProbe: {httpGet: {port: http}, periodSeconds: 3}
            resources: {limits: {cpu: 100m}}
        ",
    );
    schema::normalize(ty, &mut pod).unwrap();
    let bytes = schema::encode_object(schema::builtin(), &pod).unwrap();
    assert_eq!(
        json(&schema::decode_object(schema::builtin(), &bytes).unwrap()),
        json(&pod)
    );
}
