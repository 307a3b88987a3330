use super::super::compile::tests::judge;
use super::super::compile::{compile, returned};
use super::*;
use expect_test::{Expect, expect};

const NATIVE: Architecture = Architecture::native();

fn read(text: &str) -> Result<Profile, ProfileError> {
    let conditions = Conditions {
        held: capability::held(&[], &[]).unwrap(),
        kernel: (6, 1),
    };
    parse(text.as_bytes(), conditions)
}

fn check(text: &str, calls: &[(&str, &[u64])], expected: &[Action]) {
    let code = compile(&read(text).unwrap()).unwrap();
    let results: Vec<_> = calls
        .iter()
        .map(|(name, arguments)| judge(&code, NATIVE, name, arguments))
        .collect();
    let expected: Vec<_> = expected.iter().map(|action| returned(*action)).collect();
    assert_eq!(results, expected);
}

fn check_refused(text: &str, expect: Expect) {
    expect.assert_eq(&read(text).unwrap_err().to_string());
}

#[test]
fn a_profile_of_the_oci_form() {
    let text = r#"{
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_S390X"],
        "syscalls": [
            {"names": ["read", "write", "no_such_call"], "action": "SCMP_ACT_ALLOW", "comment": "ignored"},
            {"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_KILL_PROCESS", "args": null},
            {"names": ["kill"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13},
            {"names": ["dup"], "action": "SCMP_ACT_LOG"}
        ]}"#;
    check(
        text,
        &[
            ("read", &[]),
            ("fchmodat", &[]),
            ("kill", &[]),
            ("dup", &[]),
            ("mount", &[]),
        ],
        &[
            Action::Allow,
            Action::KillProcess,
            Action::Errno(13),
            Action::Log,
            Action::Errno(38),
        ],
    );
}

#[test]
fn conditions_hold_together_unless_they_name_an_argument_twice() {
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [
            {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 1, "op": "SCMP_CMP_EQ"}]},
        {"names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [
            {"index": 1, "value": 9, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 15, "op": "SCMP_CMP_EQ"}]},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
            {"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]}
    ]}"#;
    let (allow, refuse) = (Action::Allow, Action::Errno(1));
    check(
        text,
        &[
            ("socket", &[2, 1]),
            ("socket", &[2, 2]),
            ("kill", &[0, 15]),
            ("kill", &[0, 1]),
            ("clone", &[0x11]),
            ("clone", &[0x1000_0000]),
        ],
        &[allow, refuse, allow, refuse, allow, refuse],
    );
}

#[test]
fn a_rule_without_conditions_stands_above_those_with_some() {
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["socket"], "action": "SCMP_ACT_KILL", "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_EQ"}]},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW"}]}"#;
    check(text, &[("socket", &[40])], &[Action::Allow]);
}

#[test]
fn rules_of_dockers_form_depend_on_capabilities_machine_and_kernel() {
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
                    {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]}],
        "syscalls": [
            {"names": ["chroot"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_CHROOT"]}},
            {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38, "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
            {"names": ["mseal"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "6.10"}},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["s390"]}},
            {"names": ["acct"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}}
        ]}"#;
    let (allow, refuse) = (Action::Allow, Action::Errno(1));
    check(
        text,
        &[
            ("chroot", &[]),
            ("mount", &[]),
            ("clone3", &[]),
            ("ptrace", &[]),
            ("personality", &[]),
            ("acct", &[]),
        ],
        &[allow, refuse, Action::Errno(38), allow, allow, refuse],
    );
    assert_eq!(read(text).unwrap().architectures, Architecture::others());
}

#[test]
fn what_is_not_understood_is_refused() {
    check_refused(
        "{",
        expect!["decoding failed: EOF while parsing an object at line 1 column 1"],
    );
    check_refused(
        "{}",
        expect!["decoding failed: missing field `defaultAction` at line 1 column 2"],
    );
    check_refused(
        r#"{"defaultAction": "SCMP_ACT_ASK"}"#,
        expect!["string SCMP_ACT_ASK is not a valid action for seccomp"],
    );
    let call = |call: &str| format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{call}]}}"#);
    check_refused(
        &call(r#"{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}"#),
        expect!["SCMP_ACT_NOTIFY is not supported"],
    );
    check_refused(
        &call(r#"{"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 70000}"#),
        expect!["errno 70000 is larger than 4095"],
    );
    check_refused(
        &call(r#"{"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "op": "="}]}"#),
        expect!["string = is not a valid operator for seccomp"],
    );
    check_refused(
        &call(
            r#"{"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]}"#,
        ),
        expect!["system call read has a condition on argument 6; arguments are 0 to 5"],
    );
    check_refused(
        &call(r#"{"names": ["read"], "action": "SCMP_ACT_KILL"}, {"names": ["read"], "action": "SCMP_ACT_LOG"}"#),
        expect!["system call read has two rules without conditions and different actions"],
    );
    check_refused(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_VAX"]}"#,
        expect!["string SCMP_ARCH_VAX is not a valid arch for seccomp"],
    );
    check_refused(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_NEW_LISTENER"]}"#,
        expect!["seccomp flag SECCOMP_FILTER_FLAG_NEW_LISTENER is not known"],
    );
    check_refused(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/agent.sock"}"#,
        expect!["listenerPath is not supported"],
    );
    let many = vec![r#""read""#; MAX_ENTRIES + 1].join(",");
    check_refused(
        &call(&format!(r#"{{"names": [{many}], "action": "SCMP_ACT_ALLOW"}}"#)),
        expect!["the rules have more than 10000 names and conditions"],
    );
}
