use expect_test::{Expect, expect};

use super::*;

fn pod() -> Pod {
    serde_saphyr::from_str(
        "metadata: {name: web, namespace: ns, uid: pod-1}\n\
         spec: {containers: [{name: c, volumeMounts: [{name: data, mountPath: /d}]}], volumes: [{name: data}]}",
    )
    .unwrap()
}

const OWNED: &str = "ownerReferences: [{kind: Pod, name: web, uid: pod-1, controller: true}]";
const NAMED: ClaimReference<'_> = ClaimReference::Named {
    claim: "data",
    read_only: false,
};

fn check(reference: ClaimReference<'_>, claim: &str, volume: &str, expected: Expect) {
    let (pod, claim): (Pod, Claim) = (pod(), serde_saphyr::from_str(claim).unwrap());
    let volume: PersistentVolume = serde_saphyr::from_str(volume).unwrap();
    let name = claim_name(&pod, &pod.spec.volumes[0], reference);
    let checked = check_claim(&pod, &claim, &name, reference).and_then(|_| check_binding(&claim, &volume));
    let text = match checked.map_err(|problem| problem.to_string()) {
        Ok(()) => check_mode(&pod, &pod.spec.volumes[0], &volume).map_err(|error| error.to_string()),
        Err(problem) => Err(problem),
    };
    expected.assert_eq(&text.map_or_else(|error| error, |()| "ok".to_owned()));
}

#[test]
fn a_claim_and_its_volume_must_name_each_other() {
    let claim = "{metadata: {name: data, namespace: ns, uid: c1}, spec: {volumeName: pv1}, status: {phase: Bound}}";
    let volume = "{metadata: {name: pv1}, spec: {claimRef: {uid: c1}}}";
    check(NAMED, claim, volume, expect!["ok"]);
    check(
        NAMED,
        claim,
        "{metadata: {name: pv1}, spec: {claimRef: {uid: c2}}}",
        expect!["found PV object pv1 but its pv.Spec.ClaimRef.UID c2 does not point to claim.UID c1"],
    );
    check(
        NAMED,
        claim,
        "{metadata: {name: pv1}}",
        expect!["found PV object pv1 but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"],
    );
    check(
        NAMED,
        claim,
        "{metadata: {name: pv2}, spec: {claimRef: {uid: c1}}}",
        expect![[r#"PV name "pv2" is not a valid name"#]],
    );
    check(
        NAMED,
        "{metadata: {name: data, namespace: ns, uid: c1}, status: {phase: Pending}}",
        volume,
        expect!["PVC is not bound"],
    );
    check(
        NAMED,
        "{metadata: {name: data, namespace: ns, uid: c1}, status: {phase: Bound}}",
        volume,
        expect!["PVC has empty pvc.Spec.VolumeName"],
    );
    check(
        NAMED,
        claim,
        "{metadata: {name: pv1}, spec: {claimRef: {uid: c1}, volumeMode: Block}}",
        expect!["volume data has volumeMode Block, but is specified in volumeMounts"],
    );
}

#[test]
fn what_another_namespace_or_a_strange_name_leads_to_is_refused() {
    let volume = "{metadata: {name: pv1}, spec: {claimRef: {uid: c1}}}";
    check(
        NAMED,
        "{metadata: {name: data, namespace: other, uid: c1}, spec: {volumeName: pv1}, status: {phase: Bound}}",
        volume,
        expect!["the API server answered with another object than PVC data"],
    );
    for name in ["../../etc", "..", "a/b", "A"] {
        let claim = format!(
            "{{metadata: {{name: data, namespace: ns, uid: c1}}, spec: {{volumeName: {name:?}}}, status: {{phase: Bound}}}}"
        );
        let claim: Claim = serde_saphyr::from_str(&claim).unwrap();
        let checked = check_claim(&pod(), &claim, "data", NAMED);
        assert!(matches!(checked, Err(ClaimProblem::InvalidVolumeName(_))), "{name}");
    }
}

#[test]
fn the_claim_of_an_ephemeral_volume_must_be_the_pods_own() {
    let volume = "{metadata: {name: pv1}, spec: {claimRef: {uid: c1}}}";
    let claim = |owners: &str| {
        format!(
            "{{metadata: {{name: web-data, namespace: ns, uid: c1, {owners}}}, spec: {{volumeName: pv1}}, status: {{phase: \
             Bound}}}}"
        )
    };
    check(ClaimReference::Generated, &claim(OWNED), volume, expect!["ok"]);
    let refused = "PVC ns/web-data was not created for pod ns/web (pod is not owner)";
    for owners in [
        "labels: {}".to_owned(),
        OWNED.replace("true", "false"),
        OWNED.replace("pod-1", "pod-2"),
    ] {
        let claim: Claim = serde_saphyr::from_str(&claim(&owners)).unwrap();
        let checked = check_claim(&pod(), &claim, "web-data", ClaimReference::Generated);
        assert_eq!(checked.unwrap_err().to_string(), refused, "{owners}");
    }
}

#[test]
fn node_affinity_is_judged_as_selectors_are() {
    let node = NodeLabels {
        name: "n1".to_owned(),
        labels: [
            ("zone".to_owned(), "a".to_owned()),
            ("cores".to_owned(), "8".to_owned()),
        ]
        .into(),
    };
    let usable = |terms: &str| {
        let volume = format!("{{spec: {{nodeAffinity: {{required: {{nodeSelectorTerms: {terms}}}}}}}}}");
        let volume: PersistentVolume = serde_saphyr::from_str(&volume).unwrap();
        volume.is_usable_on(&node)
    };
    assert!(usable(
        "[{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]"
    ));
    assert!(!usable(
        "[{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}]"
    ));
    assert!(usable(
        "[{matchExpressions: [{key: x, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, \
                    values: [n1]}]}]"
    ));
    assert!(usable(
        "[{matchExpressions: [{key: cores, operator: Gt, values: ['4']}, {key: y, operator: DoesNotExist}]}]"
    ));
    assert!(!usable(
        "[{matchExpressions: [{key: cores, operator: Lt, values: ['8']}]}]"
    ));
    assert!(!usable("[{}]"));
    assert!(!usable("[]"));
    assert!(PersistentVolume::default().is_usable_on(&node));
}
