//! Shuffle sharding: each flow has a small hand of queues, so that one greedy flow fills only its own hand.

/// The queues that a flow may use: `hand` different numbers below `deck`, the same ones for the same flow.
pub fn deal(flow: u64, deck: usize, hand: usize) -> Vec<usize> {
    let mut rest = spread(flow);
    let mut dealt: Vec<usize> = Vec::with_capacity(hand);
    let mut sorted: Vec<usize> = Vec::with_capacity(hand);
    for taken in 0..hand.min(deck) {
        let left = (deck - taken) as u64;
        let mut card = (rest % left) as usize;
        rest = spread((rest / left) ^ flow.rotate_left(taken as u32 + 1));
        // The card counts among those not dealt yet.
        sorted.iter().for_each(|&other| card += usize::from(card >= other));
        sorted.insert(sorted.partition_point(|&other| other < card), card);
        dealt.push(card);
    }
    dealt
}

/// Spreads a number over all bits.
fn spread(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_has_different_cards_and_is_the_same_every_time() {
        for flow in 0..1000 {
            let mut hand = deal(flow, 64, 6);
            assert_eq!(hand, deal(flow, 64, 6));
            assert!(hand.iter().all(|&card| card < 64));
            hand.sort_unstable();
            hand.dedup();
            assert_eq!(hand.len(), 6);
        }
        assert_eq!(deal(7, 2, 6).len(), 2, "a hand is never larger than the deck");
    }

    #[test]
    fn hands_cover_the_deck_evenly() {
        let mut dealt = [0usize; 16];
        (0..16_000)
            .flat_map(|flow| deal(flow, 16, 4))
            .for_each(|card| dealt[card] += 1);
        assert!(dealt.iter().all(|&times| (3_500..4_500).contains(&times)), "{dealt:?}");
    }
}
