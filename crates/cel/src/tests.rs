use expect_test::expect;

use super::*;
use crate::fuzzing::{environment, variables};

fn evaluate(source: &str) -> Result<String, String> {
    let program = Program::compile(source, &environment()).map_err(|error| error.to_string())?;
    let mut budget = Budget::new(RUNTIME_BUDGET, PER_CALL_LIMIT);
    let value = program
        .evaluate(&variables(), &mut budget)
        .map_err(|error| error.to_string())?;
    Ok(value.to_json().to_string())
}

fn is(source: &str, expected: &str) {
    assert_eq!(evaluate(source).as_deref(), Ok(expected), "{source}");
}

fn fails(source: &str, expected: &str) {
    assert_eq!(evaluate(source), Err(expected.to_owned()), "{source}");
}

#[test]
fn operators_bind_as_in_other_languages() {
    is("1 + 2 * 3 == 7 && !(4 < 3)", "true");
    is("-7 / 2", "-3");
    is("-7 % 3", "-1");
    is("'a' + 'b'", "\"ab\"");
    is("[1] + [2, 3]", "[1,2,3]");
    is("true ? 1 : 2", "1");
    is("dyn(1) == 1.0 && dyn(1u) == 1", "true");
    is("2 in [1, 2] && 'app' in object.metadata.labels", "true");
    is("0x10 + 1", "17");
    is("r'a\\n' + \"\\x41\"", "\"a\\\\nA\"");
    fails("1 / 0", "division by zero");
    fails("9223372036854775807 + 1", "integer overflow");
}

#[test]
fn fields_are_selected_and_asked_for() {
    is("object.spec.replicas > 2", "true");
    is("has(object.spec.replicas) && !has(object.spec.none)", "true");
    is("object.metadata.labels['app']", "\"web\"");
    fails("object.spec.none", "no such key: none");
    fails("object.spec.ports[7]", "index out of bounds: 7");
    is("object.spec.?none.orValue(5)", "5");
    is("object.?spec.?replicas.orValue(5)", "3");
    is("object.spec.ports[?7].hasValue()", "false");
    is("[?object.?nothing, 1]", "[1]");
    is("{'a': ['x']}[?'a'][0].orValue('')", "\"x\"");
    is("{'a': ['x']}[?'b'][0].orValue('y')", "\"y\"");
    is("{'a': {'b': 1}}[?'a'][?'b'].orValue(0)", "1");
}

#[test]
fn an_error_on_one_side_does_not_matter_when_the_other_decides() {
    is("object.none == 1 || true", "true");
    is("false && object.none == 1", "false");
    fails("object.none == 1 || false", "no such key: none");
}

#[test]
fn macros_go_over_lists_and_maps() {
    is("object.spec.ports.all(p, p > 0)", "true");
    is("object.spec.ports.exists(p, p == 443)", "true");
    is("object.spec.ports.exists_one(p, p > 0)", "false");
    is("object.spec.ports.map(p, p + 1)", "[81,444]");
    is("object.spec.ports.map(p, p > 100, p)", "[443]");
    is("object.spec.items.filter(i, i.k == 'b')", "[{\"k\":\"b\"}]");
    is("object.metadata.labels.all(k, k == 'app')", "true");
    is(
        "object.metadata.labels.transformMap(k, v, v + '!')",
        "{\"app\":\"web!\"}",
    );
    is("[10, 20].transformList(i, v, i * v)", "[0,20]");
    is("cel.bind(x, 2, x * x)", "4");
    is("optional.of(2).optMap(x, x + 1).value()", "3");
    is("optional.none() == null || optional.of(2) == null", "false");
    is("optional.of(2) != null", "true");
}

#[test]
fn the_library_speaks_of_texts_lists_and_kubernetes_own_things() {
    is("'hello'.substring(1, 3) + 'x'.upperAscii()", "\"elX\"");
    is("'a,b'.split(',').join('-')", "\"a-b\"");
    is("'%s has %d of %.2f'.format(['it', 3, 0.5])", "\"it has 3 of 0.50\"");
    is("'abc123'.find('[0-9]+')", "\"123\"");
    is("'abc'.matches('^a.c$')", "true");
    is("[3, 1, 2].max() + [1, 2].sum()", "6");
    is("[1, 2].isSorted()", "true");
    is("sets.contains([1, 2, 3], [2])", "true");
    is("quantity('1Gi').isGreaterThan(quantity('900Mi'))", "true");
    is("quantity('500m').add(quantity('1')).compareTo(quantity('1500m'))", "0");
    is(
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "true",
    );
    is("url('https://host:8080/p?a=1').getPort()", "\"8080\"");
    is("semver('1.2.3').isLessThan(semver('1.10.0'))", "true");
    is("format.dns1123Label().validate('Bad').hasValue()", "true");
    is("!format.dns1123Label().validate('good').hasValue()", "true");
    is("timestamp('2023-01-02T03:04:05Z').getMonth()", "0");
    is("duration('90m') > duration('1h')", "true");
    is("math.greatest(1, 5, 3)", "5");
    is("string(type(1)) + string(2)", "\"int2\"");
    is("size('héllo')", "5");
}

#[test]
fn what_cannot_work_is_found_before_it_runs() {
    let problem = |source: &str| Program::compile(source, &environment()).unwrap_err().to_string();
    expect![[r#"
        ERROR: <input>:1:1: undeclared reference to 'unknown' (in container '')
         | unknown.x
         | ^"#]]
    .assert_eq(&problem("unknown.x"));
    expect![[r#"
        ERROR: <input>:1:6: undefined field 'none'
         | typed.none
         | .....^"#]]
    .assert_eq(&problem("typed.none"));
    expect![[r#"
        ERROR: <input>:1:6: found no matching overload for '_+_' applied to '(string, int)'
         | name + 1
         | .....^"#]]
    .assert_eq(&problem("name + 1"));
    assert!(problem("name.foo()").contains("undeclared reference to 'foo'"));
    assert!(problem("... [").contains("Syntax error"));
    assert!(problem("1 +").contains("Syntax error: mismatched input '<EOF>'"));
    assert!(problem("'abc").contains("Syntax error"));
    assert!(problem(&"(".repeat(1000)).contains("recursion limit"));
    assert!(problem(&vec!["1"; 1000].join("+")).contains("recursion limit"));
    assert!(Program::compile(&vec!["true"; 1000].join(" && "), &environment()).is_ok());
}

#[test]
fn no_expression_runs_for_ever() {
    let numbers = "[1,2,3,4,5,6,7,8,9,10]";
    let mut source = "true".to_owned();
    for variable in ["a", "b", "c", "d", "e", "f", "g"] {
        source = format!("{numbers}.all({variable}, {source})");
    }
    fails(&source, "operation cancelled: actual cost limit exceeded");
    let program = Program::compile("name == 'web'", &environment()).unwrap();
    let mut budget = Budget::new(1, PER_CALL_LIMIT);
    assert_eq!(
        program.evaluate(&variables(), &mut budget).unwrap_err(),
        EvalError::OutOfBudget
    );
}
