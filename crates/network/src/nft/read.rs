//! Reading back what the kernel has.

use std::collections::HashSet;

use super::batch::message_kind;
use super::{Element, Table, Value, Verdict, wire};
use crate::netlink::{self, Attributes, Namespace, Writer};

/// A way to the packet rules of one network namespace.
#[derive(Debug)]
pub struct Socket(pub(super) netlink::Socket);

impl Socket {
    /// Opens the rules of the calling thread's namespace.
    pub fn open() -> Result<Socket, netlink::Error> {
        netlink::Socket::open(libc::NETLINK_NETFILTER).map(Socket)
    }

    pub fn open_in(namespace: &Namespace) -> Result<Socket, netlink::Error> {
        netlink::Socket::open_in(namespace, libc::NETLINK_NETFILTER).map(Socket)
    }

    /// The number by which [`Monitor`](super::Monitor) tells this socket's changes from others'.
    pub fn port_id(&self) -> u32 {
        self.0.port_id()
    }

    /// A table's comment, or nothing when there is no such table.
    pub fn table_comment(&self, table: &Table) -> Result<Option<String>, netlink::Error> {
        let mut comment = None;
        let asked = self.0.call(
            message_kind(libc::NFT_MSG_GETTABLE),
            0,
            |w| {
                w.raw(&[table.family as u8, 0, 0, 0])
                    .text(wire::TABLE_NAME, &table.name);
            },
            |message| {
                let data = Attributes::after(message, wire::HEADER).find(wire::TABLE_USERDATA);
                comment = Some(data.and_then(read_comment).unwrap_or_default());
            },
        );
        match asked {
            Ok(()) => Ok(comment),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of the table's chains.
    pub fn chains(&self, table: &Table) -> Result<Vec<String>, netlink::Error> {
        self.names(table, libc::NFT_MSG_GETCHAIN, wire::CHAIN_TABLE, wire::CHAIN_NAME)
    }

    /// The names of the table's sets and maps.
    pub fn sets(&self, table: &Table) -> Result<Vec<String>, netlink::Error> {
        self.names(table, libc::NFT_MSG_GETSET, wire::SET_TABLE, wire::SET_NAME)
    }

    fn names(&self, table: &Table, kind: i32, of_table: u16, name: u16) -> Result<Vec<String>, netlink::Error> {
        let build = |w: &mut Writer| {
            w.raw(&[table.family as u8, 0, 0, 0]).text(of_table, &table.name);
        };
        self.0.list(message_kind(kind), build, |message| {
            let attributes = Attributes::after(message, wire::HEADER);
            let ours = attributes.text(of_table) == Some(&table.name);
            attributes.text(name).filter(|_| ours).map(str::to_owned)
        })
    }

    /// The elements of a set or map, each once: the kernel gives some twice while it makes room for more.
    pub fn elements(&self, table: &Table, set: &str) -> Result<Vec<Element>, netlink::Error> {
        let build = |w: &mut Writer| {
            w.raw(&[table.family as u8, 0, 0, 0])
                .text(wire::ELEMENTS_TABLE, &table.name)
                .text(wire::ELEMENTS_SET, set);
        };
        let mut listed = self.0.list(message_kind(libc::NFT_MSG_GETSETELEM), build, |message| {
            let list = Attributes::after(message, wire::HEADER).nest(wire::ELEMENTS_LIST);
            let elements = list.iter().flat_map(Attributes::iter);
            elements
                .filter_map(|(_, element)| read_element(element))
                .collect::<Vec<_>>()
        })?;
        let mut seen = HashSet::with_capacity(listed.len());
        listed.retain(|element: &Element| seen.insert((element.key.clone(), element.key_end.clone())));
        Ok(listed)
    }
}

fn read_element(bytes: &[u8]) -> Option<Element> {
    let element = Attributes::new(bytes);
    let value_of = |kind| Some(element.nest(kind)?.find(wire::DATA_VALUE)?.to_vec());
    let value = element.nest(wire::ELEMENT_DATA).and_then(|data| {
        if let Some(value) = data.find(wire::DATA_VALUE) {
            return Some(Value::Data(value.to_vec()));
        }
        read_verdict(data.nest(wire::DATA_VERDICT)?).map(Value::Verdict)
    });
    Some(Element {
        key: value_of(wire::ELEMENT_KEY)?,
        key_end: value_of(wire::ELEMENT_KEY_END),
        value,
        comment: element.find(wire::ELEMENT_USERDATA).and_then(read_comment),
    })
}

fn read_verdict(verdict: Attributes<'_>) -> Option<Verdict> {
    let chain = || verdict.text(wire::VERDICT_CHAIN).map(str::to_owned);
    match verdict.be32(wire::VERDICT_CODE)? as i32 {
        libc::NF_ACCEPT => Some(Verdict::Accept),
        libc::NF_DROP => Some(Verdict::Drop),
        libc::NFT_RETURN => Some(Verdict::Return),
        libc::NFT_JUMP => chain().map(Verdict::Jump),
        libc::NFT_GOTO => chain().map(Verdict::Goto),
        _ => None,
    }
}

fn read_comment(data: &[u8]) -> Option<String> {
    let (&tag, rest) = data.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let text = rest.get(..usize::from(length).checked_sub(1)?)?;
    (tag == wire::USERDATA_COMMENT).then(|| String::from_utf8_lossy(text).into_owned())
}
