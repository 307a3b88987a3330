use super::*;
use crate::Program;

/// Every variable is a list of five texts of at most ten characters.
struct Small;

impl Sizes for Small {
    fn max_elements(&self, path: &[Step]) -> Option<u64> {
        Some(if path.len() > 1 { 10 } else { 5 })
    }
}

fn cost(source: &str) -> u64 {
    let environment = Environment::default()
        .with("names", Type::list(Type::String))
        .with("other", Type::list(Type::String));
    let program = Program::compile(source, &environment).unwrap();
    program.max_cost(&environment, &Small)
}

#[test]
fn macros_cost_as_much_as_the_loops_they_stand_for() {
    // range 1, result 1, and for each of five: condition 2, accumulator 1, body (name 1, equality 1).
    assert_eq!(cost("names.all(n, n == 'abc')"), 2 + 5 * 5);
    assert_eq!(cost("names.exists(n, n == 'abc')"), 2 + 5 * 6);
    // list 10, range 1, result 1, and for each: accumulator 1, list 10, addition 1, body 1.
    assert_eq!(cost("names.map(n, n)"), 12 + 5 * 13);
    assert_eq!(cost("names.filter(n, n == 'abc')"), 12 + 5 * 15);
    assert_eq!(cost("names.exists_one(n, n == 'abc')"), 3 + 5 * 4);
}

#[test]
fn loops_in_loops_multiply() {
    assert_eq!(cost("names.all(n, other.all(o, o == n))"), 2 + 5 * (3 + 2 + 5 * 6));
}

#[test]
fn regular_expressions_cost_the_product_of_both_lengths() {
    // (10 + 1) characters are two units, nine characters of an expression three.
    assert_eq!(cost("names.all(n, n.matches('[a-z]{1,}'))"), 2 + 5 * (3 + 1 + 2 * 3));
}

#[test]
fn nothing_overflows() {
    struct Endless;
    impl Sizes for Endless {
        fn max_elements(&self, _path: &[Step]) -> Option<u64> {
            None
        }
    }
    let environment = Environment::default().with("x", Type::list(Type::list(Type::String)));
    let source = "x.all(a, a.all(b, a.all(c, b.replace('', c).contains(c + b))))";
    let program = Program::compile(source, &environment).unwrap();
    assert_eq!(program.max_cost(&environment, &Endless), u64::MAX);
}
