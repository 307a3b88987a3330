use super::*;

async fn asked(root: &Path, path: &str) -> (u16, String) {
    let response = serve(root, PathBuf::from(path)).await.unwrap_or_else(Refusal::response);
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn files_and_directories_are_served() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("apt")).unwrap();
    std::fs::write(root.path().join("syslog"), "one\ntwo\n").unwrap();
    std::fs::write(root.path().join("a<b> c?"), "x").unwrap();
    assert_eq!(asked(root.path(), "syslog").await, (200, "one\ntwo\n".to_owned()));
    let (status, page) = asked(root.path(), "").await;
    assert_eq!(status, 200);
    let links: Vec<&str> = page.lines().filter(|line| line.starts_with("<a")).collect();
    assert_eq!(
        links,
        [
            r#"<a href="a%3Cb%3E%20c%3F">a&lt;b&gt; c?</a>"#,
            r#"<a href="apt/">apt/</a>"#,
            r#"<a href="syslog">syslog</a>"#,
        ]
    );
    assert_eq!(asked(root.path(), "nothing").await.0, 404);
    assert_eq!(asked(root.path(), "syslog/x").await.0, 403);
}

#[tokio::test]
async fn no_log_leads_out_of_the_directory() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("shadow"), "secret").unwrap();
    let root = outside.path().join("log");
    std::fs::create_dir(&root).unwrap();
    std::os::unix::fs::symlink(outside.path().join("shadow"), root.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), root.join("up")).unwrap();
    let (place, mode) = (rustix::fs::CWD, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(place, root.join("fifo"), FileType::Fifo, mode, 0).unwrap();
    for path in [
        "link",
        "up/shadow",
        "../shadow",
        "a/../../shadow",
        "/etc/passwd",
        "fifo",
    ] {
        let (status, text) = asked(&root, path).await;
        assert!(status == 403 || status == 404, "{path}: {status}");
        assert!(!text.contains("secret") && !text.contains("root:"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_query_is_a_path_where_queries_are_off() {
    let query = Query::parse("query=kubelet");
    // The directory itself, whatever the query says.
    let answer = answer(&[], &query, false).await;
    if Path::new(ROOT).is_dir() {
        assert_eq!(
            answer.unwrap().headers()[header::CONTENT_TYPE],
            "text/html; charset=utf-8"
        );
    }
}

#[tokio::test]
async fn a_query_is_refused_with_a_path_or_without_a_name() {
    let code = |answer: Answer| answer.map_or_else(|refusal| refusal.code.as_u16(), |found| found.status().as_u16());
    assert_eq!(
        code(answer(&["syslog"], &Query::parse("query=kubelet"), true).await),
        406
    );
    assert_eq!(code(answer(&[], &Query::parse("query="), true).await), 400);
    assert_eq!(
        code(answer(&[], &Query::parse("query=/../etc/passwd"), true).await),
        403
    );
}

#[tokio::test]
async fn a_service_without_a_log_is_told_by_name() {
    let asked = Query::parse("query=karve-has-no-such-service");
    let answer = answer(&[], &asked, true).await.unwrap();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "\nlog not found for karve-has-no-such-service\n");
}
