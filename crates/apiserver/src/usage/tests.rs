use std::collections::BTreeMap;

use super::series::Reading;
use super::*;

fn page(cpu: f64, at_ms: i64) -> String {
    format!(
        "# HELP container_cpu_usage_seconds_total CPU\n\
         container_cpu_usage_seconds_total{{container=\"c\",namespace=\"default\",pod=\"web\"}} {cpu} {at_ms}\n\
         container_memory_working_set_bytes{{pod=\"web\",container=\"c\",namespace=\"default\"}} 4096 {at_ms}\n\
         node_cpu_usage_seconds_total {cpu} {at_ms}\n\
         node_memory_working_set_bytes 8192 {at_ms}\n\
         resource_scrape_error 0\n"
    )
}

fn figures(pages: &[String]) -> NodeFigures {
    let mut figures = None;
    for page in pages {
        let sample = Sample::parse(page, 0);
        figures = Some(NodeFigures::next(figures.as_ref(), sample, Instant::now()));
    }
    figures.expect("a page")
}

#[test]
fn two_readings_make_a_rate() {
    let figures = figures(&[page(10.0, 100_000), page(12.5, 105_000)]);
    let expected = Usage {
        cpu_nano_cores: 500_000_000,
        memory_bytes: 8192,
        at_ms: 105_000,
        window_ms: 5000,
    };
    assert_eq!(figures.usage(), Some(expected));
    let pod = figures.pod("default", "web").expect("figures");
    let of_container = Usage {
        memory_bytes: 4096,
        ..expected
    };
    assert_eq!(pod.containers, [("c", of_container)]);
    assert_eq!((pod.at_ms, pod.window_ms), (105_000, 5000));
    assert_eq!(figures.pod("other", "web"), None);
}

#[test]
fn one_reading_makes_none() {
    let figures = figures(&[page(10.0, 100_000)]);
    assert_eq!(figures.usage(), None);
    assert_eq!(figures.pod("default", "web"), None);
}

/// A kubelet that has not measured again tells the same; the rate stays what it was.
#[test]
fn a_reading_that_is_told_again_changes_nothing() {
    let twice = figures(&[page(10.0, 100_000), page(12.5, 105_000)]).usage();
    let again = figures(&[page(10.0, 100_000), page(12.5, 105_000), page(12.5, 105_000)]);
    assert_eq!(again.usage(), twice);
}

#[test]
fn a_counter_that_starts_again_makes_no_rate() {
    let figures = figures(&[page(10.0, 100_000), page(1.0, 105_000)]);
    assert_eq!(figures.usage(), None);
}

#[test]
fn a_container_that_is_fresh_is_averaged_since_its_start() {
    let key = ("default".to_owned(), "web".to_owned());
    let usage_at = |age_ms: i64| {
        let reading = Reading {
            at_ms: 100_000,
            cpu_ns: 6_000_000_000,
            memory_bytes: 1,
            started_ms: Some(100_000 - age_ms),
        };
        let sample = Sample {
            node: None,
            pods: [(key.clone(), BTreeMap::from([("c".to_owned(), reading)]))].into(),
        };
        let figures = NodeFigures::next(None, sample, Instant::now());
        let pod = figures.pod("default", "web")?;
        Some((pod.containers[0].1.cpu_nano_cores, pod.window_ms))
    };
    assert_eq!(usage_at(9_000), None);
    assert_eq!(usage_at(12_000), Some((500_000_000, 12_000)));
    assert_eq!(usage_at(61_000), None);
}

/// Whatever a node says, nothing else comes of it than figures that are left out.
#[test]
fn what_cannot_be_true_is_left_out() {
    let labels = "{container=\"c\",namespace=\"default\",pod=\"web\"}";
    for (cpu, memory) in [
        ("NaN 5", "1 5"),
        ("+Inf 5", "1 5"),
        ("-1 5", "1 5"),
        ("1 99999999999999999", "1 5"),
        ("1 -5", "1 5"),
        ("one 5", "1 5"),
        ("", "1 5"),
        ("1 5", "-1 5"),
        ("1 5", ""),
    ] {
        let page = format!(
            "container_cpu_usage_seconds_total{labels} {cpu}\ncontainer_memory_working_set_bytes{labels} {memory}\n"
        );
        assert_eq!(Sample::parse(&page, 0), Sample::default(), "{page}");
    }
    for labels in [
        "{container=\"c\",namespace=\"default\"}",
        "{container=\"\",namespace=\"default\",pod=\"web\"}",
        "{container=\"c\\\"\",namespace=\"default\",pod=\"web\"}",
        "{container=\"c\",namespace=\"default\",pod=\"web\"",
        "{container=",
        "{",
    ] {
        let page =
            format!("container_cpu_usage_seconds_total{labels} 1 5\ncontainer_memory_working_set_bytes{labels} 1 5\n");
        assert_eq!(Sample::parse(&page, 0), Sample::default(), "{page}");
    }
}

#[test]
fn a_page_without_end_is_not_kept() {
    let mut page = String::new();
    for number in 0..20_000 {
        let labels = format!("{{container=\"c{number}\",namespace=\"default\",pod=\"web\"}}");
        page.push_str(&format!("container_cpu_usage_seconds_total{labels} 1 5\n"));
        page.push_str(&format!("container_memory_working_set_bytes{labels} 1 5\n"));
    }
    let sample = Sample::parse(&page, 0);
    let containers: usize = sample.pods.values().map(BTreeMap::len).sum();
    assert_eq!(containers, 8192);
}

#[test]
fn figures_of_a_kubelet_that_is_silent_go() {
    let table = UsageTable::default();
    table.read("one", Sample::parse(&page(1.0, 5), 0));
    assert!(table.of_node("one").is_some());
    assert!(table.of_node("two").is_none());
    let long_ago = Instant::now()
        .checked_sub(STALE)
        .expect("a machine that runs for a minute");
    let figures = NodeFigures::next(None, Sample::default(), long_ago);
    table.nodes.lock().insert("one".to_owned(), Arc::new(figures));
    assert!(table.of_node("one").is_none());
}

#[tokio::test]
async fn whoever_asks_waits_for_two_rounds() {
    let table = UsageTable::default();
    assert!(!table.finish_round());
    let (rates, ()) = tokio::join!(
        async {
            table.want().await;
            *table.rounds.borrow()
        },
        async {
            tokio::task::yield_now().await;
            assert!(table.finish_round());
        }
    );
    assert_eq!(rates, ROUNDS_FOR_RATES);
}

#[tokio::test]
async fn kubelets_are_left_alone_when_nobody_asks() {
    let table = UsageTable::default();
    let wanted = || tokio::time::timeout(Duration::from_millis(20), table.wanted());
    assert!(wanted().await.is_err());
    *table.asked.lock() = Some(Instant::now());
    assert!(wanted().await.is_ok());
    *table.asked.lock() = Instant::now().checked_sub(IDLE);
    table.read("one", Sample::parse(&page(1.0, 5), 0));
    assert!(wanted().await.is_err());
    assert!(table.of_node("one").is_none(), "rates over an idle time tell nothing");
}
