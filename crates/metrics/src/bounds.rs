//! Upper bounds of buckets, computed as upstream computes them: to the last bit, because they become labels.

/// `N` bounds, each `factor` times the one before it.
pub const fn exponential<const N: usize>(start: f64, factor: f64) -> [f64; N] {
    let mut bounds = [start; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * factor;
        at += 1;
    }
    bounds
}

/// `N` bounds, each `width` above the one before it.
pub const fn linear<const N: usize>(start: f64, width: f64) -> [f64; N] {
    let mut bounds = [start; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] + width;
        at += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;

    #[test]
    fn bounds_are_upstreams_to_the_last_digit() {
        let shown = |bounds: &[f64]| bounds.iter().map(|bound| number(*bound)).collect::<Vec<_>>().join(" ");
        assert_eq!(
            shown(&exponential::<6>(10e-9, 10.0)),
            "1e-08 1e-07 1e-06 9.999999999999999e-06 9.999999999999999e-05 0.001"
        );
        assert_eq!(shown(&linear::<3>(50_000.0, 100_000.0)), "50000 150000 250000");
    }
}
