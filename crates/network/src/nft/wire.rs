//! The numbers of nf_tables' netlink attributes, as the kernel's `nf_tables.h` and `nfnetlink.h` give them.

/// The length of `struct nfgenmsg`, which follows every netlink header.
pub const HEADER: usize = 4;
pub const SUBSYSTEM: u16 = 10;

pub const TABLE_NAME: u16 = 1;
pub const TABLE_USERDATA: u16 = 6;

pub const CHAIN_TABLE: u16 = 1;
pub const CHAIN_NAME: u16 = 3;
pub const CHAIN_HOOK: u16 = 4;
pub const CHAIN_POLICY: u16 = 5;
pub const CHAIN_TYPE: u16 = 7;
pub const HOOK_NUMBER: u16 = 1;
pub const HOOK_PRIORITY: u16 = 2;

pub const RULE_TABLE: u16 = 1;
pub const RULE_CHAIN: u16 = 2;
pub const RULE_EXPRESSIONS: u16 = 4;
pub const RULE_USERDATA: u16 = 7;

pub const SET_TABLE: u16 = 1;
pub const SET_NAME: u16 = 2;
pub const SET_FLAGS: u16 = 3;
pub const SET_KEY_TYPE: u16 = 4;
pub const SET_KEY_LENGTH: u16 = 5;
pub const SET_DATA_TYPE: u16 = 6;
pub const SET_DATA_LENGTH: u16 = 7;
pub const SET_DESCRIPTION: u16 = 9;
pub const SET_ID: u16 = 10;
pub const SET_USERDATA: u16 = 13;
/// User data of a set by which `nft` prints its keys right: tag 0, four bytes, "host".
pub const HOST_BYTE_ORDER: [u8; 6] = {
    let [a, b, c, d] = 1u32.to_ne_bytes();
    [0, 4, a, b, c, d]
};
pub const DESCRIPTION_SIZE: u16 = 1;
pub const DESCRIPTION_CONCATENATION: u16 = 2;
pub const FIELD_LENGTH: u16 = 1;

pub const ELEMENTS_TABLE: u16 = 1;
pub const ELEMENTS_SET: u16 = 2;
pub const ELEMENTS_LIST: u16 = 3;
pub const ELEMENT_KEY: u16 = 1;
pub const ELEMENT_DATA: u16 = 2;
pub const ELEMENT_USERDATA: u16 = 6;
pub const ELEMENT_KEY_END: u16 = 10;

pub const LIST_ELEMENT: u16 = 1;
pub const DATA_VALUE: u16 = 1;
pub const DATA_VERDICT: u16 = 2;
pub const VERDICT_CODE: u16 = 1;
pub const VERDICT_CHAIN: u16 = 2;
/// The data type that says a map's values are verdicts.
pub const VERDICT_TYPE: u32 = 0xffff_ff00;
/// The first tag of user data is a comment, for tables, rules and elements alike.
pub const USERDATA_COMMENT: u8 = 0;

pub const EXPRESSION_NAME: u16 = 1;
pub const EXPRESSION_DATA: u16 = 2;

pub const SET_INTERVAL: u32 = 0x4;
pub const SET_MAP: u32 = 0x8;
pub const SET_TIMEOUT: u32 = 0x10;
pub const SET_EVALUATED: u32 = 0x20;
pub const SET_CONCATENATED: u32 = 0x80;
