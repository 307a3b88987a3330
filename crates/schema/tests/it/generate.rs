//! Random objects from the schema. Choices are drawn from a string of bytes, so that a shorter or smaller string makes a
//! smaller object and failures shrink.

use schema::{SchemaAlternative, Shape, TypeRef, Value, View};
use serde_json::{Map, json};

/// Choices, made by consuming bytes; when they run out every choice is the first one.
pub struct Choices<'a> {
    bytes: &'a [u8],
    /// Also make what clients may send but servers do not keep: nulls, empty lists, zeros, odd spellings.
    pub messy: bool,
}

impl<'a> Choices<'a> {
    pub fn tidy(bytes: &'a [u8]) -> Self {
        Choices { bytes, messy: false }
    }

    pub fn messy(bytes: &'a [u8]) -> Self {
        Choices { bytes, messy: true }
    }

    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((&byte, rest)) => {
                self.bytes = rest;
                byte
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) * limit / 256
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn rarely(&mut self) -> bool {
        self.messy && self.byte() > 230
    }
}

const MAX_DEPTH: usize = 9;

pub fn object(ty: TypeRef<'_>, choices: &mut Choices<'_>) -> Value {
    structure(ty, choices, 0)
}

fn structure(ty: TypeRef<'_>, choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut map = Map::new();
    for field in ty.fields() {
        let odds = if depth < 2 { 90 } else { 160 };
        if choices.byte() > odds && depth < MAX_DEPTH && !matches!(&*field.name, "apiVersion" | "kind") {
            // Upstream refuses a null duration, which only the metrics API has; here it is zero like any other null.
            let may_be_null = field.shape != Shape::Duration;
            let value = if may_be_null && choices.rarely() {
                Value::Null
            } else {
                view(field.view(), choices, depth + 1)
            };
            map.insert(field.name.to_string(), value);
        }
    }
    if choices.rarely() {
        map.insert(
            choices.pick(&["unheard", "Metadata", "x<y"]).to_owned(),
            json!({"of": [1]}),
        );
    }
    Value::Object(map)
}

fn view(view_of: View<'_>, choices: &mut Choices<'_>, depth: usize) -> Value {
    match view_of {
        View::Leaf(shape) => leaf(shape, choices),
        View::Raw(_) => raw(choices),
        View::Struct(ty) => structure(ty, choices, depth),
        View::List(element) => {
            let least = usize::from(!choices.messy);
            let length = (least + choices.below(3)).min(if depth > 5 { 1 } else { 3 });
            let mut items = Vec::new();
            for _ in 0..length {
                let item = if choices.rarely() {
                    Value::Null
                } else {
                    view(element.view(), choices, depth + 1)
                };
                items.push(item);
            }
            Value::Array(items)
        }
        View::Map(element) => {
            let least = usize::from(!choices.messy);
            let mut map = Map::new();
            for _ in 0..least + choices.below(3) {
                let item = if choices.rarely() {
                    Value::Null
                } else {
                    view(element.view(), choices, depth + 1)
                };
                map.insert(text(choices), item);
            }
            Value::Object(map)
        }
        View::SchemaOr(alternative, ty) => match (alternative, choices.below(3)) {
            (SchemaAlternative::Bool, 0) => Value::Bool(true),
            (SchemaAlternative::Bool, 1) => Value::Bool(false),
            (SchemaAlternative::Array, 0) => json!([structure(ty, choices, depth)]),
            (SchemaAlternative::StringArray, 0) => json!([text(choices)]),
            _ => structure(ty, choices, depth),
        },
    }
}

fn text(choices: &mut Choices<'_>) -> String {
    const TEXTS: &[&str] = &[
        "a",
        "name",
        "nginx:1.27",
        "a/b.c",
        "<&>",
        "ünï\u{2028}",
        "tab\t\"q\"\\",
        "",
        "\u{1}\u{7f}",
    ];
    choices.pick(TEXTS).to_owned()
}

fn leaf(shape: Shape, choices: &mut Choices<'_>) -> Value {
    match shape {
        Shape::String => Value::String(text(choices)),
        Shape::Bool => Value::Bool(choices.byte() > 100),
        Shape::Int32 => json!(choices.pick(&[1, 0, 80, -1, i32::MAX, i32::MIN])),
        Shape::Int64 => json!(choices.pick(&[1, 0, 30, -1, i64::MAX, i64::MIN])),
        Shape::Float64 => json!(choices.pick(&[1.0, 0.0, 0.5, -2.25, 1e-9, 3e30, 100.0])),
        Shape::Bytes => json!(choices.pick(&["YQ==", "", "AAEC/w==", "aGVsbG8gd29ybGQ="])),
        Shape::Time if choices.messy => json!(choices.pick(&[
            "2024-01-02T03:04:05Z",
            "2024-01-02T03:04:05.999999+05:30",
            "0001-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
        ])),
        Shape::Time => json!(choices.pick(&["2024-01-02T03:04:05Z", "1970-01-01T00:00:00Z", "1066-10-14T09:00:00Z"])),
        Shape::MicroTime => json!(choices.pick(&["2024-01-02T03:04:05.000006Z", "2024-01-02T03:04:05.999999Z"])),
        Shape::Duration => json!(choices.pick(&["30s", "1h0m0s", "1.5ms", "0s"])),
        Shape::Quantity if choices.messy => choices.pick(&[
            json!("100m"),
            json!("1024Mi"),
            json!(2),
            json!(0.25),
            json!("1.5Gi"),
            json!(" 3 "),
            json!("1e3"),
            json!("0"),
        ]),
        Shape::Quantity => json!(choices.pick(&["100m", "1Gi", "2", "0", "1e3", "-5", "1500M"])),
        Shape::IntOrString => choices.pick(&[json!(80), json!("http"), json!(0), json!("25%"), json!("")]),
        other => panic!("{other:?} is not a leaf"),
    }
}

fn raw(choices: &mut Choices<'_>) -> Value {
    choices.pick(&[
        json!({"a": [1, null, {"b": "<>"}]}),
        json!({}),
        json!("text"),
        json!([1, 2.5]),
        json!(true),
        json!(12345678901i64),
    ])
}

/// A strategic merge patch for objects of type `ty`, directives included.
pub fn patch(ty: TypeRef<'_>, choices: &mut Choices<'_>) -> Value {
    let mut patch = structure(ty, choices, 0);
    direct(ty, &mut patch, choices);
    patch
}

fn direct(ty: TypeRef<'_>, value: &mut Value, choices: &mut Choices<'_>) {
    let Value::Object(map) = value else { return };
    let mut additions = Map::new();
    for (name, value) in map.iter_mut() {
        let Some(field) = ty.field(name) else { continue };
        match field.view() {
            View::Struct(target) => direct(target, value, choices),
            View::List(element) => {
                let Value::Array(items) = value else { continue };
                if let View::Struct(target) = element.view() {
                    items
                        .iter_mut()
                        .for_each(|item| direct_item(target, field.merge_key(), item, choices));
                    if let Some(key) = field.merge_key() {
                        // What a patch both deletes and sets, upstream orders by what is left in memory.
                        let mut seen = Vec::new();
                        items.retain(|item| {
                            !seen.contains(&item[key]) && {
                                seen.push(item[key].clone());
                                true
                            }
                        });
                    }
                } else if field.patch.merge && choices.byte() > 128 {
                    let directive = format!("$deleteFromPrimitiveList/{name}");
                    // What a patch both adds and deletes, upstream adds or deletes at random.
                    let mut unwanted = vec![json!(text(choices)), json!(text(choices))];
                    items.retain(|item| !item.is_null());
                    unwanted.retain(|item| !items.contains(item));
                    additions.insert(directive, Value::Array(unwanted));
                }
                if field.patch.merge && choices.byte() > 160 {
                    additions.insert(
                        format!("$setElementOrder/{name}"),
                        order(field.merge_key(), items, choices),
                    );
                }
            }
            _ => {}
        }
    }
    map.extend(additions);
    if choices.byte() > 245 {
        map.insert(
            "$patch".to_owned(),
            json!(choices.pick(&["delete", "replace", "merge", "odd"])),
        );
    }
    if choices.byte() > 240 {
        let mut keys: Vec<Value> = map
            .keys()
            .filter(|key| !key.starts_with('$'))
            .map(|key| json!(key))
            .collect();
        keys.truncate(keys.len() - usize::from(keys.len() > 1 && choices.byte() > 200));
        map.insert("$retainKeys".to_owned(), Value::Array(keys));
    }
}

fn direct_item(ty: TypeRef<'_>, merge_key: Option<&str>, item: &mut Value, choices: &mut Choices<'_>) {
    direct(ty, item, choices);
    let (Some(key), Value::Object(map)) = (merge_key, item) else {
        return;
    };
    if choices.byte() > 20
        && let Some(field) = ty.field(key)
    {
        let identity = view(field.view(), choices, MAX_DEPTH);
        map.insert(key.to_owned(), identity);
    }
    if choices.byte() > 200 {
        map.insert(
            "$patch".to_owned(),
            json!(choices.pick(&["delete", "delete", "replace", "merge"])),
        );
    }
}

fn order(merge_key: Option<&str>, items: &[Value], choices: &mut Choices<'_>) -> Value {
    let identity = |item: &Value| match merge_key {
        Some(key) => json!({key: item.get(key)}),
        None => item.clone(),
    };
    let mut order: Vec<Value> = items
        .iter()
        .filter(|item| item.get("$patch").is_none())
        .map(identity)
        .collect();
    if choices.byte() > 128 {
        let extra = match merge_key {
            Some(key) => json!({key: text(choices)}),
            None => json!(text(choices)),
        };
        order.insert(choices.below(order.len() + 1), extra);
    }
    if choices.byte() > 220 {
        order.reverse();
    }
    Value::Array(order)
}

/// Gives the items of merged lists the keys they are merged by.
pub fn identify(ty: TypeRef<'_>, value: &mut Value, choices: &mut Choices<'_>) {
    let Value::Object(map) = value else { return };
    for (name, value) in map.iter_mut() {
        let Some(field) = ty.field(name) else { continue };
        match (field.view(), value) {
            (View::Struct(target), value) => identify(target, value, choices),
            (View::List(element), Value::Array(items)) => {
                let View::Struct(target) = element.view() else {
                    // Of scalars that stand twice in a live list, upstream's order depends on spare memory.
                    let mut seen = Vec::new();
                    items.retain(|item| {
                        !seen.contains(item) && {
                            seen.push(item.clone());
                            true
                        }
                    });
                    continue;
                };
                for item in items {
                    identify(target, item, choices);
                    if let (Some(key), Value::Object(map)) = (field.merge_key(), item)
                        && let Some(key_field) = target.field(key)
                    {
                        map.insert(key.to_owned(), view(key_field.view(), choices, MAX_DEPTH));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Leaves one item of each key in merged lists.
pub fn make_unique(ty: TypeRef<'_>, value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (name, value) in map.iter_mut() {
        let Some(field) = ty.field(name) else { continue };
        match (field.view(), value) {
            (View::Struct(target), value) => make_unique(target, value),
            (View::List(element), Value::Array(items)) => {
                let mut seen = Vec::new();
                if let Some(key) = field.merge_key() {
                    items.retain(|item| {
                        let is_new = !seen.contains(&item[key]);
                        seen.push(item[key].clone());
                        is_new
                    });
                }
                if let View::Struct(target) = element.view() {
                    items.iter_mut().for_each(|item| make_unique(target, item));
                }
            }
            _ => {}
        }
    }
}

/// A JSON patch that mostly touches what the document has.
pub fn operations(document: &Value, choices: &mut Choices<'_>) -> Value {
    let mut pointers = Vec::new();
    collect_pointers(document, String::new(), &mut pointers);
    let count = 1 + choices.below(4);
    let operations = (0..count).map(|_| {
        let pointer = |choices: &mut Choices<'_>| {
            let chosen = if choices.byte() > 240 {
                String::new()
            } else {
                choices.pick(&pointers)
            };
            match choices.below(8) {
                0 => chosen + "/-",
                1 => chosen + "/0",
                2 => chosen + "/-1",
                3 => chosen + "/new",
                4 => chosen + "/a~1b",
                _ => chosen,
            }
        };
        let (path, from) = (pointer(choices), pointer(choices));
        let op = choices.pick(&["add", "remove", "replace", "move", "copy", "test", "test", "add", "odd"]);
        let value = match choices.below(4) {
            0 => document.pointer(&path).cloned().unwrap_or(Value::Null),
            _ => raw(choices),
        };
        json!({"op": op, "path": path, "from": from, "value": value})
    });
    Value::Array(operations.collect())
}

fn collect_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect_pointers(value, format!("{at}/{key}"), pointers);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_pointers(value, format!("{at}/{index}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(at);
}
