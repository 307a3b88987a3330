//! What comes over connections: requests, pages, certificates, messages of the CRI.

use cri::v1;
use prost::Message;

/// A client's certificate, as TLS gives it.
pub fn certificate(data: &[u8]) {
    let _ = auth::authenticate::x509::user(data);
}

/// A certificate of nobody, signed by nobody: its fields are what is read.
pub fn certificates() -> Vec<Vec<u8>> {
    let der = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        [
            &[tag, 0x82, (content.len() >> 8) as u8, content.len() as u8],
            content.as_slice(),
        ]
        .concat()
    };
    let (sequence, set, number, time, text) = (0x30, 0x31, 2, 0x17, 0x0c);
    let name = |oid: u8, value: &[u8]| {
        let pair = der(sequence, &[&[6, 3, 0x55, 4, oid], &der(text, &[value])]);
        der(set, &[&pair])
    };
    let algorithm = der(sequence, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let subject = der(sequence, &[&name(10, b"system:nodes"), &name(3, b"system:node:a")]);
    let validity = der(
        sequence,
        &[&der(time, &[b"260101000000Z"]), &der(time, &[b"270101000000Z"])],
    );
    let key = der(sequence, &[&algorithm, &der(3, &[&[0, 4, 1, 2]])]);
    let version = der(0xa0, &[&der(number, &[&[2]])]);
    let content = [
        &version,
        &der(number, &[&[1]]),
        &algorithm,
        &subject,
        &validity,
        &subject,
        &key,
    ];
    let content = der(sequence, &content.map(Vec::as_slice));
    vec![der(sequence, &[&content, &algorithm, &der(3, &[&[0, 1, 2]])])]
}

/// The first byte chooses a message that a kubelet or a runtime reads.
pub fn cri(data: &[u8]) {
    let Some((choice, message)) = data.split_first() else {
        return;
    };
    match choice % 5 {
        0 => read_and_write::<v1::RunPodSandboxRequest>(message),
        1 => read_and_write::<v1::CreateContainerRequest>(message),
        2 => read_and_write::<v1::ContainerStatusResponse>(message),
        3 => read_and_write::<v1::ListPodSandboxResponse>(message),
        _ => read_and_write::<v1::StatusResponse>(message),
    }
}

fn read_and_write<M: Message + Default>(message: &[u8]) {
    if let Ok(read) = M::decode(message) {
        let written = read.encode_to_vec();
        assert!(M::decode(written.as_slice()).is_ok());
    }
}

pub fn cri_messages() -> Vec<Vec<u8>> {
    let metadata = v1::PodSandboxMetadata {
        name: "web".into(),
        uid: "1".into(),
        namespace: "default".into(),
        attempt: 1,
    };
    let sandbox = v1::PodSandboxConfig {
        metadata: Some(metadata),
        hostname: "web".into(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..Default::default()
    };
    let run = v1::RunPodSandboxRequest {
        config: Some(sandbox.clone()),
        runtime_handler: String::new(),
    };
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "1".into(),
        config: Some(v1::ContainerConfig {
            command: vec!["/karve".into()],
            mounts: vec![v1::Mount::default()],
            ..Default::default()
        }),
        sandbox_config: Some(sandbox),
    };
    let list = v1::ListPodSandboxResponse {
        items: vec![v1::PodSandbox::default(); 3],
    };
    vec![
        [vec![0], run.encode_to_vec()].concat(),
        [vec![1], create.encode_to_vec()].concat(),
        [vec![3], list.encode_to_vec()].concat(),
    ]
}

pub fn requests() -> Vec<Vec<u8>> {
    let texts = [
        "/api/v1/namespaces/default/pods/web:80/proxy/x/y%20z?a=b&watch=1\napplication/json;as=Table;v=v1;g=meta.k8s.io",
        "/apis/apps/v1/namespaces/default/deployments/web/scale?dryRun=All&fieldManager=a&fieldValidation=Strict\n*/*",
        "/api/v1/pods?limit=5&continue=eyJydiI6NSwic3RhcnQiOiIvYSJ9&labelSelector=a%3Db\napplication/vnd.kubernetes.protobuf, */*;q=0.8",
        "/healthz/ping/?verbose&exclude=a+b\nkubectl/v1.36 (linux/amd64) kubernetes/abc",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn pages() -> Vec<Vec<u8>> {
    let page = "<!DOCTYPE html><!-- <a href='/no'> --><html><A HREF=\"/a?b#c\" x>t</a><img src=/i.png\n\
                usemap='#m'><script src = '//host/s.js'>if (a < b) {}</script><form action=\"\" method=post></html>";
    vec![page.as_bytes().to_vec()]
}
