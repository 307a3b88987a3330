//! Inputs that are nearly right, made from a seed so that each can be made again.

/// Inputs grow to no more than this.
const MAX_BYTES: usize = 128 << 10;
/// How deep a nest of one repeated piece may be.
const MAX_NEST: usize = 20_000;

/// Pieces that mean something to one reader or another.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"-0",
    b"9223372036854775808",
    b"18446744073709551616",
    b"0.1",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xc3",
    b"\xe2\x82\xac",
    b"\0",
    b"\n",
    b" ",
    b"{\"a\":",
    b"[[",
    b"\"$patch\":\"delete\",",
    b"\"$patch\":\"replace\",",
    b"\"$retainKeys\":[\"a\"],",
    b"\"$setElementOrder/containers\":[{\"name\":\"a\"}],",
    b"\"$deleteFromPrimitiveList/finalizers\":[\"a\"],",
    b"\"f:a\":{},",
    b"\"k:{\\\"name\\\":\\\"a\\\"}\":{\".\":{}},",
    b"\"v:1\":{},",
    b"\"i:0\":{},",
    b"\"-\":{},",
    b"metadata",
    b"spec",
    b"name",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"---\n",
    b"- ",
    b"? ",
    b"|\n",
    b"%2F",
    b"%",
    b"%zz",
    b"&",
    b"=",
    b"!=",
    b" in (",
    b")",
    b"(",
    b"<",
    b">",
    b"'",
    b"..",
    b"../",
    b"/",
    b"//",
    b".wh.",
    b"[0]",
    b".map(x, x)",
    b"size(",
    b" ? 1 : ",
    b"||",
    b"x.all(y, y)",
    b"b''",
    b"r\"",
    b"\\",
    b"0x",
    b"u",
    b".format([",
    b"matches('(a*)*$')",
    b"\x08\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xc0\x0c",
    b"99999999999",
];

/// A generator whose numbers depend on nothing but its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is at least one.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// One of the seeds with a few changes. A small part is left as it is, so that sound inputs are tried as well.
pub fn input(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut data = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(8) {
        change(&mut data, seeds, random);
        data.truncate(MAX_BYTES);
    }
    data
}

fn change(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(data.len() + 1);
    let until = (at + random.below(32)).min(data.len());
    match random.below(10) {
        0 if at < data.len() => data[at] ^= 1 << random.below(8),
        1 if at < data.len() => data[at] = random.next() as u8,
        2 | 3 => insert(data, at, PIECES[random.below(PIECES.len())]),
        4 => drop(data.drain(at..until)),
        5 => {
            let piece = data[at..until].repeat(1 + random.below(8));
            insert(data, at, &piece);
        }
        6 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let to = (from + random.below(200)).min(other.len());
            insert(data, at, &other[from..to]);
        }
        7 => data.truncate(at),
        8 => drop(data.splice(at..until, PIECES[random.below(PIECES.len())].iter().copied())),
        9 if random.below(20) == 0 => {
            let piece = PIECES[random.below(PIECES.len())];
            insert(data, at, &piece.repeat(1 + random.below(MAX_NEST)));
        }
        _ => {}
    }
}

fn insert(data: &mut Vec<u8>, at: usize, piece: &[u8]) {
    data.splice(at..at, piece.iter().copied());
}

/// The pieces as libFuzzer reads them.
pub fn dictionary() -> String {
    let escaped = |piece: &[u8]| piece.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    PIECES.iter().map(|piece| format!("\"{}\"\n", escaped(piece))).collect()
}

/// A piece repeated as deep as it goes, for each piece: the inputs that a recursion without a bound ends with.
pub fn nests() -> impl Iterator<Item = Vec<u8>> {
    PIECES.iter().map(|piece| piece.repeat(MAX_NEST))
}
