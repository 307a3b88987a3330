//! The API server as every simulation starts it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use apiserver::{
    ApiServer, AuthorizerSpec, ClusterFacts, GateOptions, KubeletTls, KubeletTrust, Options, ServiceNetwork, Services,
};
use auth::authenticate::ServiceAccounts;
use rustls::{ClientConfig, RootCertStore};
use store::Store;

pub async fn start(store: Arc<dyn Store>) -> Arc<ApiServer> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of the provider")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let tls = Arc::new(tls);
    let kubelets = KubeletTls {
        identity: None,
        trust: KubeletTrust::Anyone,
        is_for_kubelets_only: false,
    };
    let accounts = ServiceAccounts::new(vec!["https://simulation".to_owned()], Vec::new(), None, Vec::new());
    let options = Options {
        store,
        admission: apiserver::AdmissionOptions::default(),
        gate: GateOptions {
            allow_anonymous: false,
            ..GateOptions::new(accounts, vec![AuthorizerSpec::Node, AuthorizerSpec::Rbac])
        },
        services: Services {
            network: ServiceNetwork::parse("10.96.0.0/16").expect("a network"),
            node_ports: (30000, 32767),
            root: "/registry".to_owned(),
        },
        facts: ClusterFacts {
            advertise: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            secure_port: 6443,
            authority: "PEM".to_owned(),
            client_authority: "PEM".to_owned(),
            local_node: None,
            serving_approver: None,
            allocates_node_cidrs: false,
        },
        kubelets: kubelets.dialer().expect("a configuration"),
        front_proxy: apiserver::FrontProxy::without_certificate(tls.clone()),
        encryption: Arc::new(apiserver::Encryption::none(apiserver::STORE_ROOT)),
        insecure_tls: tls,
        max_reads_in_flight: 400,
        max_writes_in_flight: 200,
        pages: Vec::new(),
        auditor: None,
    };
    ApiServer::start(options).await.expect("the server starts")
}
