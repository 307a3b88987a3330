//! The resolver configuration and hosts file of a pod.

use cri::v1;

use crate::pod::{DnsPolicy, Pod};

/// What pods need to find names.
#[derive(Clone, Debug, Default)]
pub struct ClusterDns {
    pub servers: Vec<String>,
    /// Such as `cluster.local`.
    pub domain: String,
}

/// The parts of a `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

/// The C library's own bounds, which upstream applies too.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;

impl Resolver {
    pub fn parse(text: &str) -> Resolver {
        let mut resolver = Resolver::default();
        for line in text.lines().map(str::trim) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                // The last search line counts.
                Some("search") => resolver.searches = words.map(str::to_owned).collect(),
                Some("options") => resolver.options.extend(words.map(str::to_owned)),
                _ => {}
            }
        }
        resolver
    }
}

/// What the runtime writes into the pod's `resolv.conf`.
pub fn config(pod: &Pod, host: &Resolver, cluster: &ClusterDns) -> v1::DnsConfig {
    let mut resolver = match policy(pod, cluster) {
        DnsPolicy::None => Resolver::default(),
        DnsPolicy::Default => host.clone(),
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => cluster_first(pod, host, cluster),
    };
    if let Some(own) = &pod.spec.dns_config {
        resolver.servers.extend(own.nameservers.iter().cloned());
        resolver.searches.extend(own.searches.iter().cloned());
        for option in &own.options {
            // A pod's own option replaces one of the same name.
            let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
            resolver.options.retain(|known| name(known) != option.name);
            resolver.options.push(match &option.value {
                Some(value) => format!("{}:{value}", option.name),
                None => option.name.clone(),
            });
        }
    }
    v1::DnsConfig {
        servers: distinct(resolver.servers, MAX_SERVERS),
        searches: distinct(resolver.searches, MAX_SEARCHES),
        options: resolver.options,
    }
}

/// A pod on the host's network asks for cluster names only if it says so, and without cluster DNS nobody can.
fn policy(pod: &Pod, cluster: &ClusterDns) -> DnsPolicy {
    match pod.spec.dns_policy {
        DnsPolicy::ClusterFirst if pod.spec.host_network => DnsPolicy::Default,
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet if cluster.servers.is_empty() => {
            DnsPolicy::Default
        }
        policy => policy,
    }
}

fn cluster_first(pod: &Pod, host: &Resolver, cluster: &ClusterDns) -> Resolver {
    let (namespace, domain) = (&pod.metadata.namespace, &cluster.domain);
    let own = match domain.as_str() {
        "" => Vec::new(),
        domain => vec![
            format!("{namespace}.svc.{domain}"),
            format!("svc.{domain}"),
            domain.to_owned(),
        ],
    };
    Resolver {
        servers: cluster.servers.clone(),
        searches: own.into_iter().chain(host.searches.iter().cloned()).collect(),
        options: vec!["ndots:5".to_owned()],
    }
}

fn distinct(items: Vec<String>, limit: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for item in items {
        if out.len() < limit && !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// The name by which DNS knows the pod, if it has one.
pub fn domain_name(pod: &Pod, cluster_domain: &str) -> Option<String> {
    if pod.spec.hostname_override.is_some() {
        return None;
    }
    let subdomain = Some(&pod.spec.subdomain).filter(|subdomain| !subdomain.is_empty())?;
    let namespace = &pod.metadata.namespace;
    Some(format!(
        "{}.{subdomain}.{namespace}.svc.{cluster_domain}",
        pod.hostname()
    ))
}

/// The content of `/etc/hosts`. Pods on the host's network get the host's file, and both get their aliases.
pub fn hosts_file(pod: &Pod, pod_ips: &[String], cluster_domain: &str, host_file: &str) -> String {
    let mut text = if pod.spec.host_network {
        format!("# Kubernetes-managed hosts file (host network).\n{host_file}")
    } else {
        let mut text = String::from(LOOPBACK);
        for ip in pod_ips {
            match domain_name(pod, cluster_domain) {
                Some(domain) => text += &format!("{ip}\t{domain}\t{}\n", pod.hostname()),
                None => text += &format!("{ip}\t{}\n", pod.hostname()),
            }
        }
        text
    };
    if !pod.spec.host_aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
        for alias in &pod.spec.host_aliases {
            text += &format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t"));
        }
    }
    text
}

const LOOPBACK: &str = "# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(spec: &str, expected: Expect) {
        let pod: Pod =
            serde_saphyr::from_str(&format!("metadata: {{name: web, namespace: shop}}\nspec: {spec}")).unwrap();
        let host = Resolver::parse("# c\nnameserver 192.0.2.53\nsearch example.com\noptions timeout:1\n");
        let cluster = ClusterDns {
            servers: vec!["10.96.0.10".to_owned()],
            domain: "cluster.local".to_owned(),
        };
        let config = config(&pod, &host, &cluster);
        let list = |items: &[String]| items.join(" ");
        expected.assert_eq(&format!(
            "{} | {} | {}",
            list(&config.servers),
            list(&config.searches),
            list(&config.options)
        ));
    }

    #[test]
    fn the_policy_chooses_the_resolver() {
        check(
            "{}",
            expect!["10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5"],
        );
        check("{dnsPolicy: Default}", expect!["192.0.2.53 | example.com | timeout:1"]);
        check("{hostNetwork: true}", expect!["192.0.2.53 | example.com | timeout:1"]);
        check(
            "{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}",
            expect!["10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5"],
        );
        check(
            "{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a.b], options: [{name: ndots, value: '2'}, {name: edns0}]}}",
            expect!["1.1.1.1 | a.b | ndots:2 edns0"],
        );
    }

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let pod: Pod = serde_saphyr::from_str(
            "metadata: {name: web-0, namespace: shop}
spec: {subdomain: web, hostAliases: [{ip: 10.1.1.1, hostnames: [a, b]}]}",
        )
        .unwrap();
        let text = hosts_file(&pod, &["10.0.0.5".to_owned()], "cluster.local", "");
        expect![[r#"
            10.0.0.5	web-0.web.shop.svc.cluster.local	web-0

            # Entries added by HostAliases.
            10.1.1.1	a	b
        "#]]
        .assert_eq(text.strip_prefix(LOOPBACK).unwrap());
    }
}
