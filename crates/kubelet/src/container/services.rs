//! The environment variables by which containers find services, as Docker links once named them.

use std::net::IpAddr;

use serde::Deserialize;

/// What a service's variables are made from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ServiceMeta,
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceMeta {
    pub name: String,
    pub namespace: String,
    pub resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    pub name: String,
    pub port: u16,
    pub protocol: String,
}

/// The service of the API server, which every pod is told about.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Variables for a pod in `namespace`: for the API server always, for its own namespace's services if it wants links.
pub fn variables<'a>(
    services: impl Iterator<Item = &'a Service>,
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let wanted = services.filter(|service| {
        let metadata = &service.metadata;
        let master = (metadata.namespace.as_str(), metadata.name.as_str()) == MASTER;
        master || (links && metadata.namespace == namespace)
    });
    // A service of the pod's own namespace that is called `kubernetes` stands before the API server's.
    let mut wanted: Vec<&Service> = wanted.collect();
    wanted.sort_by_key(|service| (service.metadata.namespace == namespace, service.metadata.name.clone()));
    wanted.into_iter().flat_map(variables_of_service).collect()
}

fn variables_of_service(service: &Service) -> Vec<(String, String)> {
    let Ok(address) = service.spec.cluster_ip.parse::<IpAddr>() else {
        return Vec::new();
    };
    let Some(first) = service.spec.ports.first() else {
        return Vec::new();
    };
    let name = variable(&service.metadata.name);
    let mut all = vec![
        (format!("{name}_SERVICE_HOST"), address.to_string()),
        (format!("{name}_SERVICE_PORT"), first.port.to_string()),
    ];
    let named = service.spec.ports.iter().filter(|port| !port.name.is_empty());
    all.extend(named.map(|port| {
        (
            format!("{name}_SERVICE_PORT_{}", variable(&port.name)),
            port.port.to_string(),
        )
    }));
    for (index, port) in service.spec.ports.iter().enumerate() {
        let protocol = match port.protocol.as_str() {
            "" => "TCP",
            protocol => protocol,
        };
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        let prefix = format!("{name}_PORT_{}_{protocol}", port.port);
        if index == 0 {
            all.push((format!("{name}_PORT"), url.clone()));
        }
        all.push((prefix.clone(), url));
        all.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
        all.push((format!("{prefix}_PORT"), port.port.to_string()));
        all.push((format!("{prefix}_ADDR"), address.to_string()));
    }
    all
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn services_are_named_as_docker_links_were() {
        let services: Vec<Service> = serde_saphyr::from_str(
            r#"
- metadata: {name: kubernetes, namespace: default}
  spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443, protocol: TCP}]}
- metadata: {name: my-db, namespace: shop}
  spec: {clusterIP: 10.96.0.7, ports: [{port: 5432, protocol: TCP}]}
- metadata: {name: headless, namespace: shop}
  spec: {clusterIP: None, ports: [{port: 1}]}
- metadata: {name: foreign, namespace: other}
  spec: {clusterIP: 10.96.0.8, ports: [{port: 1}]}
"#,
        )
        .unwrap();
        let text: String = variables(services.iter(), "shop", true)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        expect![[r#"
            KUBERNETES_SERVICE_HOST=10.96.0.1
            KUBERNETES_SERVICE_PORT=443
            KUBERNETES_SERVICE_PORT_HTTPS=443
            KUBERNETES_PORT=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
            KUBERNETES_PORT_443_TCP_PROTO=tcp
            KUBERNETES_PORT_443_TCP_PORT=443
            KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
            MY_DB_SERVICE_HOST=10.96.0.7
            MY_DB_SERVICE_PORT=5432
            MY_DB_PORT=tcp://10.96.0.7:5432
            MY_DB_PORT_5432_TCP=tcp://10.96.0.7:5432
            MY_DB_PORT_5432_TCP_PROTO=tcp
            MY_DB_PORT_5432_TCP_PORT=5432
            MY_DB_PORT_5432_TCP_ADDR=10.96.0.7
        "#]]
        .assert_eq(&text);
        assert_eq!(variables(services.iter(), "shop", false).len(), 8);
    }
}
