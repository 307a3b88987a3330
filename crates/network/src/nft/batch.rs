//! Transactions.

use std::fmt;

use super::expression::write_verdict;
use super::{Base, ChainKind, Element, Expression, Set, Socket, Table, Type, Value, ValueType, wire};
use crate::netlink::{self, Attributes, Message, Writer, messages};

/// Changes that take effect together. They are applied in order, so a chain may be added and then referred to.
#[derive(Debug)]
pub struct Batch {
    writer: Writer,
    changes: usize,
}

/// A transaction that was refused; nothing of it took effect.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// The changes that the kernel refused; empty when the transaction as a whole could not be carried out.
    pub failures: Vec<Failure>,
    /// Why the transaction did not reach the kernel, if it did not.
    #[source]
    pub source: Option<netlink::Error>,
}

/// A refused change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was to be done to which object, such as `add rule to chain ip karve-proxy services`.
    pub change: String,
    pub error: netlink::Error,
}

impl Error {
    /// Something that was to be changed is not there.
    pub fn is_absent(&self) -> bool {
        self.failures.iter().any(|failure| failure.error.is_absent())
    }
}

impl Batch {
    pub fn new() -> Batch {
        let mut writer = Writer::new();
        write_boundary(&mut writer, libc::NFNL_MSG_BATCH_BEGIN);
        Batch { writer, changes: 0 }
    }

    /// No change has been added.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Adds a table, or leaves it as it is. A new one gets the comment.
    pub fn add_table(&mut self, table: &Table, comment: Option<&str>) {
        self.change(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, table, |w| {
            w.text(wire::TABLE_NAME, &table.name);
            if let Some(comment) = comment {
                w.attribute(wire::TABLE_USERDATA, &userdata(comment));
            }
        });
    }

    /// Removes a table with all it contains. Refused when it is absent; add it before where that may be so.
    pub fn remove_table(&mut self, table: &Table) {
        self.change(libc::NFT_MSG_DELTABLE, 0, table, |w| {
            w.text(wire::TABLE_NAME, &table.name);
        });
    }

    /// Adds a chain, or leaves it as it is.
    pub fn add_chain(&mut self, table: &Table, name: &str, base: Option<Base>) {
        self.change(libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, table, |w| {
            w.text(wire::CHAIN_TABLE, &table.name).text(wire::CHAIN_NAME, name);
            if let Some(base) = base {
                let kind = match base.kind {
                    ChainKind::Filter => "filter",
                    ChainKind::Nat => "nat",
                };
                w.nest(wire::CHAIN_HOOK, |w| {
                    w.be32(wire::HOOK_NUMBER, base.hook as u32)
                        .be32(wire::HOOK_PRIORITY, base.priority as u32);
                })
                .be32(wire::CHAIN_POLICY, libc::NF_ACCEPT as u32)
                .text(wire::CHAIN_TYPE, kind);
            }
        });
    }

    /// Removes a chain that has no rules (any more) and that nothing refers to.
    pub fn remove_chain(&mut self, table: &Table, name: &str) {
        self.change(libc::NFT_MSG_DELCHAIN, 0, table, |w| {
            w.text(wire::CHAIN_TABLE, &table.name).text(wire::CHAIN_NAME, name);
        });
    }

    /// Removes the rules of a chain.
    pub fn flush_chain(&mut self, table: &Table, name: &str) {
        self.change(libc::NFT_MSG_DELRULE, 0, table, |w| {
            w.text(wire::RULE_TABLE, &table.name).text(wire::RULE_CHAIN, name);
        });
    }

    /// Appends a rule to a chain.
    pub fn add_rule(&mut self, table: &Table, chain: &str, comment: &str, expressions: &[Expression]) {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        self.change(libc::NFT_MSG_NEWRULE, flags, table, |w| {
            w.text(wire::RULE_TABLE, &table.name)
                .text(wire::RULE_CHAIN, chain)
                .nest(wire::RULE_EXPRESSIONS, |w| {
                    for expression in expressions {
                        expression.write(w);
                    }
                });
            if !comment.is_empty() {
                w.attribute(wire::RULE_USERDATA, &userdata(comment));
            }
        });
    }

    /// Adds a set or map, or leaves it as it is.
    pub fn add_set(&mut self, table: &Table, set: &Set) {
        let id = self.writer.sequence();
        self.change(libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, table, |w| {
            w.text(wire::SET_TABLE, &table.name)
                .text(wire::SET_NAME, &set.name)
                .be32(wire::SET_ID, id)
                .be32(wire::SET_FLAGS, set_flags(set))
                .be32(wire::SET_KEY_TYPE, type_number(&set.key))
                .be32(wire::SET_KEY_LENGTH, data_bytes(&set.key));
            match &set.value {
                None => {}
                Some(ValueType::Verdict) => {
                    w.be32(wire::SET_DATA_TYPE, wire::VERDICT_TYPE);
                }
                Some(ValueType::Data(types)) => {
                    w.be32(wire::SET_DATA_TYPE, type_number(types))
                        .be32(wire::SET_DATA_LENGTH, data_bytes(types));
                }
            }
            write_description(w, set);
            if matches!(set.key[..], [Type::Mark | Type::InterfaceName]) {
                w.attribute(wire::SET_USERDATA, &wire::HOST_BYTE_ORDER);
            }
        });
    }

    /// Removes a set or map, which nothing may refer to any more, with its elements.
    pub fn remove_set(&mut self, table: &Table, name: &str) {
        self.change(libc::NFT_MSG_DELSET, 0, table, |w| {
            w.text(wire::SET_TABLE, &table.name).text(wire::SET_NAME, name);
        });
    }

    /// Adds elements; those that are there already with the same value are left as they are.
    pub fn add_elements<'a>(&mut self, table: &Table, set: &str, elements: impl IntoIterator<Item = &'a Element>) {
        self.change_elements(libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE, table, set, elements);
    }

    /// Removes elements, all of which must be there. Values and comments given are not looked at.
    pub fn remove_elements<'a>(&mut self, table: &Table, set: &str, elements: impl IntoIterator<Item = &'a Element>) {
        self.change_elements(libc::NFT_MSG_DELSETELEM, 0, table, set, elements);
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, table: &Table, set: &str) {
        self.change(libc::NFT_MSG_DELSETELEM, 0, table, |w| {
            w.text(wire::ELEMENTS_TABLE, &table.name).text(wire::ELEMENTS_SET, set);
        });
    }

    /// Appends the changes of another batch.
    pub fn append(&mut self, other: Batch) {
        self.changes += other.changes;
        self.writer.append(&other.writer, BOUNDARY_BYTES);
    }

    /// Carries out all changes, or none and says which were refused.
    pub fn commit(mut self, socket: &Socket) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        write_boundary(&mut self.writer, libc::NFNL_MSG_BATCH_END);
        let failed = socket.0.send_batch(&self.writer).map_err(|error| Error {
            failures: Vec::new(),
            source: Some(error),
        })?;
        if failed.is_empty() {
            return Ok(());
        }
        let failures = failed
            .into_iter()
            .take(REPORTED_FAILURES)
            .map(|(sequence, error)| Failure {
                change: describe(self.writer.bytes(), sequence),
                error,
            })
            .collect();
        Err(Error { failures, source: None })
    }

    fn change(&mut self, kind: i32, flags: i32, table: &Table, build: impl FnOnce(&mut Writer)) {
        self.changes += 1;
        let family = table.family as u8;
        self.writer
            .message(message_kind(kind), flags | libc::NLM_F_REQUEST, |w| {
                build(w.raw(&[family, 0, 0, 0]));
            });
    }

    fn change_elements<'a>(
        &mut self,
        kind: i32,
        flags: i32,
        table: &Table,
        set: &str,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        let mut elements = elements.into_iter().peekable();
        while elements.peek().is_some() {
            self.change(kind, flags, table, |w| {
                w.text(wire::ELEMENTS_TABLE, &table.name)
                    .text(wire::ELEMENTS_SET, set)
                    .nest(wire::ELEMENTS_LIST, |w| {
                        for element in elements.by_ref().take(ELEMENTS_PER_MESSAGE) {
                            write_element(w, element);
                        }
                    });
            });
        }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// The message that begins or ends a batch.
const BOUNDARY_BYTES: usize = 20;
/// An element takes at most about 400 bytes, and a list of them must stay below 64 KiB.
const ELEMENTS_PER_MESSAGE: usize = 150;
/// More refused changes than this say nothing more.
const REPORTED_FAILURES: usize = 8;
/// How much of an element's comment is kept.
const COMMENT_BYTES: usize = 120;

pub(super) fn message_kind(kind: i32) -> u16 {
    wire::SUBSYSTEM << 8 | kind as u16
}

fn write_boundary(writer: &mut Writer, kind: i32) {
    writer.message(kind as u16, libc::NLM_F_REQUEST, |w| {
        let [high, low] = wire::SUBSYSTEM.to_be_bytes();
        w.raw(&[libc::AF_UNSPEC as u8, 0, high, low]);
    });
}

fn write_element(w: &mut Writer, element: &Element) {
    w.nest(wire::LIST_ELEMENT, |w| {
        write_key(w, wire::ELEMENT_KEY, &element.key);
        if let Some(end) = &element.key_end {
            write_key(w, wire::ELEMENT_KEY_END, end);
        }
        match &element.value {
            None => {}
            Some(Value::Data(data)) => write_key(w, wire::ELEMENT_DATA, data),
            Some(Value::Verdict(verdict)) => {
                w.nest(wire::ELEMENT_DATA, |w| write_verdict(w, verdict));
            }
        }
        if let Some(comment) = &element.comment {
            w.attribute(wire::ELEMENT_USERDATA, &userdata(comment));
        }
    });
}

fn write_key(w: &mut Writer, kind: u16, key: &[u8]) {
    w.nest(kind, |w| {
        w.attribute(wire::DATA_VALUE, key);
    });
}

/// How large a set may get, and where the parts of ranges are in its keys.
fn write_description(w: &mut Writer, set: &Set) {
    let has_fields = set.interval && set.key.len() > 1;
    if !has_fields && set.size.is_none() {
        return;
    }
    w.nest(wire::SET_DESCRIPTION, |w| {
        if let Some(size) = set.size {
            w.be32(wire::DESCRIPTION_SIZE, size);
        }
        if has_fields {
            w.nest(wire::DESCRIPTION_CONCATENATION, |w| {
                for part in &set.key {
                    w.nest(wire::LIST_ELEMENT, |w| {
                        w.be32(wire::FIELD_LENGTH, part.bytes());
                    });
                }
            });
        }
    });
}

fn set_flags(set: &Set) -> u32 {
    let when = |condition: bool, flags: u32| if condition { flags } else { 0 };
    when(set.value.is_some(), wire::SET_MAP)
        | when(set.interval, wire::SET_INTERVAL)
        | when(set.interval && set.key.len() > 1, wire::SET_CONCATENATED)
        | when(set.dynamic, wire::SET_TIMEOUT | wire::SET_EVALUATED)
}

/// The type of a concatenation has six bits for each part.
fn type_number(types: &[Type]) -> u32 {
    types.iter().fold(0, |number, part| number << 6 | part.number())
}

fn data_bytes(types: &[Type]) -> u32 {
    match types {
        [one] => one.bytes(),
        several => several.iter().map(|part| part.bytes().next_multiple_of(4)).sum(),
    }
}

/// A comment as `nft` stores it: a tag, a length, and a text with its closing zero byte.
fn userdata(comment: &str) -> Vec<u8> {
    let mut end = comment.len().min(COMMENT_BYTES);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    let mut data = vec![wire::USERDATA_COMMENT, end as u8 + 1];
    data.extend_from_slice(&comment.as_bytes()[..end]);
    data.push(0);
    data
}

/// Says in words what the message with that sequence number was to do.
fn describe(batch: &[u8], sequence: u32) -> String {
    let message = messages(batch).find(|message| message.sequence == sequence);
    message.map_or("the transaction".to_owned(), |message| describe_message(&message))
}

fn describe_message(message: &Message<'_>) -> String {
    let attributes = Attributes::after(message, wire::HEADER);
    let text = |kind| attributes.text(kind).unwrap_or("?");
    let family = match message.body.first() {
        Some(1) => "inet",
        Some(2) => "ip",
        Some(7) => "bridge",
        Some(10) => "ip6",
        _ => "?",
    };
    let table = format!("{family} {}", text(wire::TABLE_NAME));
    let elements = || {
        attributes
            .nest(wire::ELEMENTS_LIST)
            .map_or(0, |list| list.iter().count())
    };
    match i32::from(message.kind & 0xff) {
        libc::NFT_MSG_NEWTABLE => format!("add table {table}"),
        libc::NFT_MSG_DELTABLE => format!("remove table {table}"),
        libc::NFT_MSG_NEWCHAIN => format!("add chain {table} {}", text(wire::CHAIN_NAME)),
        libc::NFT_MSG_DELCHAIN => format!("remove chain {table} {}", text(wire::CHAIN_NAME)),
        libc::NFT_MSG_NEWRULE => format!("add rule to chain {table} {}", text(wire::RULE_CHAIN)),
        libc::NFT_MSG_DELRULE => format!("remove rules of chain {table} {}", text(wire::RULE_CHAIN)),
        libc::NFT_MSG_NEWSET => format!("add set {table} {}", text(wire::SET_NAME)),
        libc::NFT_MSG_DELSET => format!("remove set {table} {}", text(wire::SET_NAME)),
        libc::NFT_MSG_NEWSETELEM => format!(
            "add {} elements to set {table} {}",
            elements(),
            text(wire::ELEMENTS_SET)
        ),
        libc::NFT_MSG_DELSETELEM => {
            format!(
                "remove {} elements from set {table} {}",
                elements(),
                text(wire::ELEMENTS_SET)
            )
        }
        other => format!("message {other} about table {table}"),
    }
}

/// One line per change, in words.
impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_change = |message: &Message<'_>| message.kind >> 8 == wire::SUBSYSTEM;
        for message in messages(self.writer.bytes()).filter(is_change) {
            writeln!(f, "{}", describe_message(&message))?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            return write!(f, "the transaction could not be sent: {source}");
        }
        for (index, failure) in self.failures.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", failure.change, failure.error)?;
        }
        Ok(())
    }
}
