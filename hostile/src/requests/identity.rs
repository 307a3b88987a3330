//! Who somebody says to be.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::{Client, JSON};
use crate::cluster::administrator;
use crate::server::OtherServer;
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{PATIENCE, World};

pub const IMPERSONATION: Case = Case {
    name: "requests/impersonation",
    class: "",
    must_not: "Who may impersonate only users impersonates UIDs, extras or groups too, or makes of system:anonymous somebody who is known.",
    needs: &[],
    run: impersonation,
};

pub const PROXY_HEADERS: Case = Case {
    name: "requests/proxy-headers",
    class: "",
    must_not: "A client without the front proxy's certificate is believed X-Remote-User and X-Remote-Group.",
    needs: &[],
    run: proxy_headers,
};

pub const ANONYMOUS_WITH_ALL_RIGHTS: Case = Case {
    name: "requests/anonymous-with-all-rights",
    class: "",
    must_not: "With --authorization-mode=AlwaysAllow everybody without credentials may do everything.",
    needs: &[],
    run: anonymous_with_all_rights,
};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Who the server holds a request for; nothing when it is refused.
fn who(client: &Client, headers: &[(&str, &str)]) -> Result<(u16, Value)> {
    let mut all = vec![("Content-Type", JSON)];
    all.extend_from_slice(headers);
    let answer = client.send(
        "POST",
        REVIEWS,
        &all,
        b"{\"kind\":\"SelfSubjectReview\",\"apiVersion\":\"authentication.k8s.io/v1\"}",
    )?;
    Ok((answer.status, answer.json()["status"]["userInfo"].clone()))
}

fn impersonation(world: &World) -> Result<Verdict> {
    let user = world.user_with(json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]))?;
    let honest = wait_for("an honest impersonation", PATIENCE, || {
        let (status, honest) = who(&user, &[("Impersonate-User", "alice")])?;
        Ok((status == 201).then_some(honest))
    })?;
    ensure!(honest["username"] == "alice", "an honest impersonation: {honest}");

    let mut attempts = Vec::new();
    for (what, header) in [
        ("a UID", ("Impersonate-Uid", "1234")),
        ("an extra", ("Impersonate-Extra-scopes", "everything")),
        ("a group", ("Impersonate-Group", "system:masters")),
    ] {
        let (status, info) = who(&user, &[("Impersonate-User", "alice"), header])?;
        attempts.push(match status {
            403 => Verdict::Blocked(format!("impersonating {what}: {status}")),
            _ => Verdict::Succeeded(format!(
                "impersonating {what} without the right to was answered {status}: {info}"
            )),
        });
    }
    let (status, info) = who(&user, &[("Impersonate-User", "system:anonymous")])?;
    let known = info["groups"].to_string().contains("system:authenticated");
    attempts.push(match known {
        true => Verdict::Succeeded(format!("system:anonymous became {info}")),
        false => Verdict::Blocked(format!("impersonating system:anonymous: {status} {}", info["groups"])),
    });
    for alone in [("Impersonate-Group", "system:masters"), ("Impersonate-Uid", "1234")] {
        let (status, info) = who(&user, &[alone])?;
        let gained = status < 300;
        attempts.push(match gained {
            true => Verdict::Succeeded(format!("{} without a user was ignored or believed: {info}", alone.0)),
            false => Verdict::Blocked(format!("{} without a user: {status}", alone.0)),
        });
    }
    judge(&attempts)
}

fn proxy_headers(world: &World) -> Result<Verdict> {
    let headers = [
        ("X-Remote-User", "administrator"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Uid", "0"),
        ("X-Remote-Extra-Scopes", "all"),
    ];
    let (stranger, name) = world.stranger()?;
    let (_, info) = who(&stranger, &headers)?;
    ensure!(info["username"].is_string(), "the review was refused");
    let mut attempts = vec![
        match info["username"] == name.as_str() && !info.to_string().contains("system:masters") {
            true => Verdict::Blocked(format!("the server holds the request for {}", info["username"])),
            false => Verdict::Succeeded(format!("the server holds the request for {info}")),
        },
    ];
    let anonymous = world.anonymous().send("GET", "/api/v1/secrets", &headers, &[])?;
    attempts.push(match anonymous.is_success() {
        true => Verdict::Succeeded("a client without a certificate reads all secrets".to_owned()),
        false => Verdict::Blocked(anonymous.summary()),
    });
    judge(&attempts)
}

fn anonymous_with_all_rights(world: &World) -> Result<Verdict> {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, 7443).into();
    let port = address.port().to_string();
    let arguments = [
        "kube-apiserver",
        "--authorization-mode",
        "AlwaysAllow",
        "--secure-port",
        &port,
    ];
    let mut server = OtherServer::start(world, &arguments)?;
    server.until("an API server with AlwaysAllow", |pki| {
        let admin = administrator(pki, address).ok()?;
        let answer = admin.get("/api/v1/namespaces").ok()?;
        answer.is_success().then_some(())
    })?;
    let answer = Client::anonymous(address).get("/api/v1/secrets")?;
    match answer.status {
        401 => blocked(answer.summary()),
        _ => succeeded(format!("a client without credentials was answered {}", answer.status)),
    }
}
