//! Messages that nobody sane sends, for `fuzz/`.

use crate::keepable::keepable;
use crate::wire::{self, Code, Data, Query, Record, Reply};

/// The largest message over TCP.
const LARGEST: usize = u16::MAX as usize;

/// Reads the message as a question and as somebody's answer, and answers the question.
pub fn message(data: &[u8]) {
    if let Some(kept) = keepable(data) {
        assert!(kept.ttl_s > 0 && kept.ttls_at.iter().all(|at| at + 4 <= data.len()));
    }
    let records = wire::addresses(data, "web.default.svc.cluster.local");
    let Ok(query) = Query::parse(data) else {
        return;
    };
    let mut reply = Reply::with_code(Code::Success);
    reply.answers = records;
    reply.answers.push(Record {
        name: query.name.clone(),
        ttl_s: 5,
        data: Data::Ptr(query.name.clone()),
    });
    assert!(query.answer(&reply, query.udp_bytes).len() <= query.udp_bytes.max(data.len() + 64));
    query.answer(&reply, LARGEST);
    // What we ask others must be a question that we understand ourselves.
    assert!(Query::parse(&query.about(&query.name)).is_ok());
}

/// Questions and an answer, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = |flags: [u8; 2], counts: [u8; 4]| {
        let mut message = vec![0, 7, flags[0], flags[1]];
        counts.into_iter().for_each(|count| message.extend([0, count]));
        message
    };
    let name = b"\x03web\x07default\x03svc\x07cluster\x05local\0";
    let question = [name.as_slice(), &[0, 1, 0, 1]].concat();
    let extension = [0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0];
    let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 1];
    vec![
        [header([1, 0], [1, 0, 0, 0]), question.clone()].concat(),
        [header([1, 0], [1, 0, 0, 1]), question.clone(), extension.to_vec()].concat(),
        [header([0x81, 0x80], [1, 1, 0, 0]), question, address.to_vec()].concat(),
    ]
}
