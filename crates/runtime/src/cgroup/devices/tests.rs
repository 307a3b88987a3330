use super::*;
use expect_test::expect;

/// Interprets a program as the kernel does. Answers whether it allows.
fn run(code: &[BpfInstruction], kind: u32, access: u32, major: u32, minor: u32) -> bool {
    let context = [access << 16 | kind, major, minor];
    let (mut at, mut registers) = (0_usize, [0_u64; 6]);
    loop {
        let BpfInstruction {
            code: operation,
            registers: named,
            offset,
            immediate,
        } = code[at];
        let (to, from) = (usize::from(named & 15), usize::from(named >> 4));
        at += 1;
        match operation {
            0x61 => registers[to] = context[offset as usize / 4].into(),
            0xBF => registers[to] = registers[from],
            0xB7 => registers[to] = immediate as u64,
            0x57 => registers[to] &= immediate as u64,
            0x77 => registers[to] >>= immediate,
            0x55 if registers[to] != immediate as u64 => at += offset as usize,
            0x5D if registers[to] != registers[from] => at += offset as usize,
            0x55 | 0x5D => {}
            0x95 => return registers[0] == 1,
            other => panic!("instruction {other:#x}"),
        }
    }
}

const BLOCK: u32 = 1;
const CHARACTER: u32 = 2;
const MAKE: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;

#[test]
fn the_default_program_opens_what_containers_have_and_nothing_else() {
    let code = program(DEFAULT);
    for (major, minor) in [
        (1, 3),
        (1, 5),
        (1, 7),
        (1, 8),
        (1, 9),
        (5, 0),
        (5, 2),
        (136, 0),
        (136, 77),
    ] {
        assert!(run(&code, CHARACTER, READ | WRITE, major, minor), "{major}:{minor}");
        assert!(
            !run(&code, BLOCK, READ, major, minor),
            "{major}:{minor} is another device as a block device"
        );
    }
    for (major, minor) in [(1, 1), (1, 2), (1, 11), (10, 200), (10, 229), (254, 0)] {
        assert!(!run(&code, CHARACTER, READ, major, minor));
        assert!(!run(&code, BLOCK, READ, major, minor));
        assert!(run(&code, BLOCK, MAKE, major, minor), "a node may be made");
        assert!(!run(&code, BLOCK, MAKE | READ, major, minor));
    }
}

#[test]
fn a_device_that_is_given_can_be_used_as_it_is_given() {
    let given = |access: &str| DeviceRule {
        kind: DeviceKind::Block,
        major: Some(254),
        minor: Some(0),
        access: Access::parse(access).unwrap(),
    };
    let code = program(&with_given(&[given("r")]));
    assert!(run(&code, BLOCK, READ, 254, 0));
    assert!(!run(&code, BLOCK, WRITE, 254, 0) && !run(&code, BLOCK, READ | WRITE, 254, 0));
    assert!(!run(&code, BLOCK, READ, 254, 1));
    // Twice the same device is once the device with both rights.
    let code = program(&with_given(&[given("r"), given("w")]));
    assert!(run(&code, BLOCK, READ | WRITE, 254, 0));
}

#[test]
fn rights_are_read_by_their_letters() {
    assert_eq!(Access::parse("rwm"), Some(Access::ALL));
    assert_eq!(Access::parse(""), Some(Access(0)));
    assert_eq!(Access::parse("rx"), None);
}

#[test]
fn rules_in_the_words_of_version_1() {
    let lines: Vec<_> = DEFAULT.iter().map(line).collect();
    expect![[r#"
        b *:* m
        c *:* m
        c 1:3 rwm
        c 1:5 rwm
        c 1:7 rwm
        c 1:8 rwm
        c 1:9 rwm
        c 5:0 rwm
        c 5:1 rwm
        c 5:2 rwm
        c 136:* rwm"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_kernel_takes_the_program() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "this test needs root");
        eprintln!("SKIPPED: this test needs root");
        return;
    }
    let given = DeviceRule {
        kind: DeviceKind::Block,
        major: Some(254),
        minor: None,
        access: Access::READ,
    };
    sys::load_device_program(&program(&with_given(&[given]))).unwrap();
}
