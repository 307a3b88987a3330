use std::cell::RefCell;

use super::*;

/// The user that comes of it and what had to be asked for, when whoever asks may do what `allowed` says: lines of
/// `VERB GROUP/RESOURCE NAMESPACE/NAME`.
fn check(requestor: &User, wanted: &User, allowed: &[&str]) -> (Result<User, String>, Vec<String>) {
    let (user, asked) = check_after(None, requestor, wanted, allowed);
    (user.map(|(user, _)| user), asked)
}

/// The same for somebody for whom a way was open before, and which one it is now.
fn check_after(
    last: Option<Mode>,
    requestor: &User,
    wanted: &User,
    allowed: &[&str],
) -> (Result<(User, Mode), String>, Vec<String>) {
    let asked = RefCell::new(Vec::new());
    let ask = |attributes: &Attributes<'_>| {
        let Attributes {
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
            ..
        } = attributes;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let line = format!("{verb} {group}/{resource}{slash}{subresource} {namespace}/{name}");
        let is_allowed = allowed.contains(&line.as_str());
        asked.borrow_mut().push(line);
        match is_allowed {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    };
    let request = Attributes::resource(requestor, "list", "", "pods").named("team", "");
    let user = impersonate(&ask, &request, wanted, last).map_err(|error| error.message);
    (user, asked.into_inner())
}

fn jane() -> User {
    User::system("jane", &[])
}

fn groups(user: Result<User, String>) -> Vec<String> {
    user.expect("an impersonated user").groups
}

#[test]
fn each_thing_that_is_claimed_needs_a_right() {
    let mut wanted = User::new("bob", &["dev"]);
    wanted.uid = "u1".to_owned();
    wanted.extra.insert("scopes".to_owned(), vec!["read".to_owned()]);
    let all = [
        "impersonate /users /bob",
        "impersonate authentication.k8s.io/uids /u1",
        "impersonate /groups /dev",
        "impersonate authentication.k8s.io/userextras/scopes /read",
    ];
    let (user, _) = check(&jane(), &wanted, &all);
    let user = user.expect("all rights are there");
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "u1"));
    assert_eq!(user.groups, ["dev", AUTHENTICATED]);
    assert_eq!(user.extra, wanted.extra);
    for missing in 0..all.len() {
        let some: Vec<&str> = (0..all.len()).filter(|at| *at != missing).map(|at| all[at]).collect();
        assert!(check(&jane(), &wanted, &some).0.is_err(), "without {}", all[missing]);
    }
}

#[test]
fn nobody_gains_the_group_of_those_who_proved_who_they_are() {
    let anonymous = ["impersonate /users /system:anonymous"];
    let (user, _) = check(&jane(), &User::new(ANONYMOUS, &[]), &anonymous);
    assert_eq!(groups(user), [UNAUTHENTICATED]);
    let unauthenticated = ["impersonate /users /bob", "impersonate /groups /system:unauthenticated"];
    let (user, _) = check(&jane(), &User::new("bob", &[UNAUTHENTICATED]), &unauthenticated);
    assert_eq!(groups(user), [UNAUTHENTICATED]);
}

#[test]
fn service_accounts_have_their_groups_and_no_name_only_looks_like_one() {
    let account = User::new("system:serviceaccount:team:web", &[]);
    let (user, _) = check(&jane(), &account, &["impersonate /serviceaccounts team/web"]);
    let expected = ["system:serviceaccounts", "system:serviceaccounts:team", AUTHENTICATED];
    assert_eq!(groups(user), expected);
    for odd in [
        "system:serviceaccount:team:web:x",
        "system:serviceaccount:team:",
        "system:serviceaccount:T:web",
    ] {
        let (refused, asked) = check(
            &jane(),
            &User::new(odd, &[]),
            &["impersonate /serviceaccounts team/web"],
        );
        assert!(refused.is_err(), "{odd}");
        assert_eq!(asked.last().unwrap(), &format!("impersonate /users /{odd}"));
    }
}

#[test]
fn a_constrained_way_asks_for_the_deed_as_well() {
    let wanted = User::new("bob", &[]);
    let be = "impersonate:user-info authentication.k8s.io/users /bob";
    let act = "impersonate-on:user-info:list /pods team/";
    let (user, _) = check(&jane(), &wanted, &[be, act]);
    assert_eq!(groups(user), [AUTHENTICATED]);
    for one in [be, act] {
        assert!(check(&jane(), &wanted, &[one]).0.is_err(), "{one}");
    }
    // The old right opens the old way only.
    let (_, asked) = check(&jane(), &wanted, &[]);
    assert_eq!(asked, [act, "impersonate /users /bob"]);
}

/// What is remembered decides only what is tried first.
#[test]
fn the_way_that_was_open_last_is_tried_first() {
    let wanted = User::new("bob", &[]);
    let legacy = "impersonate /users /bob";
    let (user, asked) = check_after(Some(Mode::Legacy), &jane(), &wanted, &[legacy]);
    assert_eq!(user.map(|(_, mode)| mode), Ok(Mode::Legacy));
    assert_eq!(asked, [legacy]);
    for last in MODES {
        assert!(check_after(Some(last), &jane(), &wanted, &[]).0.is_err(), "{last:?}");
    }
}

#[test]
fn constrained_ways_never_lead_to_masters_or_to_odd_extra_values() {
    let act = "impersonate-on:user-info:list /pods team/";
    let be = "impersonate:user-info authentication.k8s.io/users /bob";
    let masters = "impersonate:user-info authentication.k8s.io/groups /system:masters";
    let any = "impersonate:user-info authentication.k8s.io/groups /*";
    for groups in [&[MASTERS][..], &["a", "b", "c", MASTERS], &[""]] {
        let (refused, _) = check(&jane(), &User::new("bob", groups), &[act, be, masters, any]);
        assert!(refused.is_err(), "{groups:?}");
    }
    for (key, value) in [
        ("plain", "x"),
        ("acme.io/A", "x"),
        ("acme.io/a", ""),
        ("", "x"),
        ("acme.io/a b", "x"),
    ] {
        let mut wanted = User::new("bob", &[]);
        wanted.extra.insert(key.to_owned(), vec![value.to_owned()]);
        let right = format!("impersonate:user-info authentication.k8s.io/userextras/{key} /{value}");
        assert!(
            check(&jane(), &wanted, &[act, be, &right]).0.is_err(),
            "{key:?}: {value:?}"
        );
    }
}

#[test]
fn an_account_becomes_the_node_of_its_own_pod_only() {
    let mut agent = User::service_account("team", "agent", "u").authenticated();
    agent.extra.insert(NODE_NAME.to_owned(), vec!["one".to_owned()]);
    let rights = [
        "impersonate-on:associated-node:list /pods team/",
        "impersonate:associated-node authentication.k8s.io/nodes /*",
    ];
    let (user, _) = check(&agent, &User::new("system:node:one", &[]), &rights);
    assert_eq!(groups(user), [NODES, AUTHENTICATED]);
    assert!(check(&agent, &User::new("system:node:two", &[]), &rights).0.is_err());
    assert!(check(&jane(), &User::new("system:node:one", &[]), &rights).0.is_err());
    // Nobody adds groups to a node.
    let with_group = User::new("system:node:one", &["system:masters"]);
    assert!(check(&agent, &with_group, &rights).0.is_err());
}
