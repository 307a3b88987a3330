//! Who a container runs as: what the pod asks, what the image says, and what its `/etc/passwd` makes of it.

use cri::v1::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};

use crate::spec::User;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("unable to find user {0}: no matching entries in passwd file")]
    NoUser(String),
    #[error("unable to find group {0}: no matching entries in group file")]
    NoGroup(String),
    #[error("user group {0} is specified without user")]
    GroupWithoutUser(i64),
    #[error("{0} is not a valid user or group id")]
    BadId(i64),
}

/// The highest user or group id, as upstream's runtimes bound them. Beyond it lies the one that tells the kernel to leave
/// the id as it is: a process that is to become that user would go on as root.
const MAX_ID: u32 = i32::MAX as u32;

/// A line of `/etc/passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// The user part of an image's `USER`, as a number where it is one. For the kubelet's check of `runAsNonRoot`.
pub fn image_user(user: &str) -> (Option<i64>, String) {
    let name = user.split(':').next().unwrap_or_default();
    match name.parse::<u32>() {
        Ok(uid) => (Some(uid.into()), String::new()),
        Err(_) if name.is_empty() => (Some(0), String::new()),
        Err(_) => (None, name.to_owned()),
    }
}

/// Resolves the user of a container.
pub fn resolve(
    security: &LinuxContainerSecurityContext,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> Result<User, UserError> {
    let wanted = wanted(security, image_user)?;
    let account = accounts(passwd).find(|account| match wanted.user.parse::<u32>() {
        Ok(uid) => account.uid == uid,
        Err(_) => account.name == wanted.user,
    });
    let uid = match (&account, wanted.user.parse::<u32>()) {
        (Some(account), _) => account.uid,
        (None, Ok(uid)) => uid,
        // Every image has a root, even one without any file.
        (None, Err(_)) if wanted.user == "root" => 0,
        (None, Err(_)) => return Err(UserError::NoUser(wanted.user)),
    };
    let gid = match &wanted.group {
        Some(name) => group_id(name, group)?,
        None => account.as_ref().map_or(0, |account| account.gid),
    };
    let mut groups = vec![gid];
    if security.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge
        && let Some(account) = &account
    {
        groups.extend(memberships(group, account.name));
    }
    for supplemental in &security.supplemental_groups {
        groups.push(u32::try_from(*supplemental).map_err(|_| UserError::BadId(*supplemental))?);
    }
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|group| seen.insert(*group));
    if let Some(id) = groups.iter().chain([&uid]).find(|id| **id > MAX_ID) {
        return Err(UserError::BadId((*id).into()));
    }
    Ok(User {
        uid,
        gid,
        groups,
        home: account.map_or_else(|| "/".to_owned(), |account| account.home.to_owned()),
    })
}

struct Wanted {
    /// A name or a number.
    user: String,
    group: Option<String>,
}

/// The pod's word counts before the image's. A group of the pod's replaces the image's only together with a user.
fn wanted(security: &LinuxContainerSecurityContext, image_user: &str) -> Result<Wanted, UserError> {
    let id = |value: i64| {
        u32::try_from(value)
            .map(|id| id.to_string())
            .map_err(|_| UserError::BadId(value))
    };
    let pod_user = match &security.run_as_user {
        Some(user) => Some(id(user.value)?),
        None => (!security.run_as_username.is_empty()).then(|| security.run_as_username.clone()),
    };
    let pod_group = security
        .run_as_group
        .as_ref()
        .map(|group| id(group.value).map(|id| (group.value, id)));
    match (pod_user, pod_group.transpose()?) {
        (Some(user), group) => Ok(Wanted {
            user,
            group: group.map(|(_, id)| id),
        }),
        (None, Some((group, _))) => Err(UserError::GroupWithoutUser(group)),
        (None, None) => {
            let (user, group) = match image_user.split_once(':') {
                Some((user, group)) => (user, Some(group.to_owned())),
                None => (image_user, None),
            };
            Ok(Wanted {
                user: if user.is_empty() {
                    "0".to_owned()
                } else {
                    user.to_owned()
                },
                group,
            })
        }
    }
}

fn accounts(passwd: &str) -> impl Iterator<Item = Account<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account {
            name,
            uid,
            gid,
            home: fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/"),
        })
    })
}

/// The lines of `/etc/group`: name, id, members.
fn groups(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, fields.nth(1)?.parse().ok()?, fields.next().unwrap_or_default()))
    })
}

fn group_id(name: &str, group: &str) -> Result<u32, UserError> {
    let known = groups(group).find(|(known, ..)| *known == name).map(|(_, id, _)| id);
    known
        .or_else(|| name.parse().ok())
        .ok_or_else(|| UserError::NoGroup(name.to_owned()))
}

fn memberships<'a>(group: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    groups(group)
        .filter(move |(.., members)| members.split(',').any(|member| member == user))
        .map(|(_, id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::v1::Int64Value;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv:/sbin/nologin\n";
    const GROUP: &str = "root:x:0:root\nwheel:x:10:root,admin\nweb:x:102:\nlogs:x:7:web\n";

    fn check(security: LinuxContainerSecurityContext, image: &str, expected: &str) {
        let shown = match resolve(&security, image, PASSWD, GROUP) {
            Ok(user) => format!("{}:{} {:?} {}", user.uid, user.gid, user.groups, user.home),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    fn asked(user: Option<i64>, group: Option<i64>) -> LinuxContainerSecurityContext {
        let value = |value| Int64Value { value };
        LinuxContainerSecurityContext {
            run_as_user: user.map(value),
            run_as_group: group.map(value),
            supplemental_groups: vec![2000],
            ..Default::default()
        }
    }

    #[test]
    fn the_image_decides_where_the_pod_does_not() {
        check(asked(None, None), "", "0:0 [0, 10, 2000] /root");
        check(asked(None, None), "web", "101:102 [102, 7, 2000] /srv");
        check(asked(None, None), "101:logs", "101:7 [7, 2000] /srv");
        check(asked(None, None), "4000", "4000:0 [0, 2000] /");
        check(
            asked(None, None),
            "nobody",
            "unable to find user nobody: no matching entries in passwd file",
        );
    }

    #[test]
    fn the_pod_decides_where_it_does() {
        check(asked(Some(101), None), "root", "101:102 [102, 7, 2000] /srv");
        check(asked(Some(5000), Some(6000)), "web", "5000:6000 [6000, 2000] /");
        check(
            asked(None, Some(6000)),
            "web",
            "user group 6000 is specified without user",
        );
        check(asked(Some(-1), None), "", "-1 is not a valid user or group id");
    }

    #[test]
    fn a_strict_pod_gets_only_the_groups_it_names() {
        let strict = LinuxContainerSecurityContext {
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict.into(),
            ..asked(Some(101), None)
        };
        check(strict, "", "101:102 [102, 2000] /srv");
    }

    #[test]
    fn the_kubelet_is_told_a_number_where_the_image_has_one() {
        assert_eq!(image_user("1000:1000"), (Some(1000), String::new()));
        assert_eq!(image_user(""), (Some(0), String::new()));
        assert_eq!(image_user("web"), (None, "web".to_owned()));
    }

    #[test]
    fn an_id_that_the_kernel_ignores_is_refused() {
        let refused = |id: &str| format!("{id} is not a valid user or group id");
        check(
            LinuxContainerSecurityContext::default(),
            "2147483647:2147483647",
            "2147483647:2147483647 [2147483647] /",
        );
        for id in ["4294967295", "2147483648"] {
            check(LinuxContainerSecurityContext::default(), id, &refused(id));
            check(
                LinuxContainerSecurityContext::default(),
                &format!("web:{id}"),
                &refused(id),
            );
            let passwd = format!("evil:x:{id}:0::/:/bin/sh\n");
            let error = resolve(&LinuxContainerSecurityContext::default(), "evil", &passwd, GROUP).err();
            assert_eq!(error.map(|error| error.to_string()), Some(refused(id)));
        }
    }
}
