use auth::User;
use serde_json::{Value, json};

use super::super::testing::{Scripted, reply};
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    hook: Scripted,
    directory: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        World {
            hook: Scripted::start().await,
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    /// A webhook that answers this status, then RBAC that knows no role.
    fn answer(&self, status: Value) {
        self.hook
            .answer(move |_, _| Some(reply(200, json!({ "status": status }).to_string())));
    }

    fn configure(&self, failure_policy: &str, rest: &str) -> PathBuf {
        let kubeconfig = self.hook.kubeconfig(self.directory.path(), "/authorize");
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
             - type: Webhook\n  name: hook\n  webhook:\n    timeout: 2s\n    subjectAccessReviewVersion: v1\n    \
             failurePolicy: {failure_policy}\n    \
             connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}\n{rest}\
             - {{type: RBAC, name: rbac}}\n",
            kubeconfig.display()
        );
        let path = self.directory.path().join("authorization.yaml");
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn chain(&self, failure_policy: &str, rest: &str) -> AuthorizerChain {
        let source = AuthorizationSource::File(self.configure(failure_policy, rest));
        AuthorizerChain::open(source, local()).expect("a sound configuration")
    }
}

fn local() -> LocalAuthorizers {
    LocalAuthorizers {
        rbac: Arc::default(),
        nodes: Arc::default(),
        abac: None,
    }
}

async fn ask(chain: &AuthorizerChain, user: &User) -> Decision {
    chain
        .decide(&Attributes::resource(user, "get", "", "pods").named("team", "web"))
        .await
}

#[tokio::test]
async fn a_webhook_decides_and_is_remembered() {
    let world = World::new().await;
    let jane = User::system("jane", &[]);
    world.answer(json!({"allowed": true, "reason": "because"}));
    let chain = world.chain("NoOpinion", "");
    for _ in 0..3 {
        assert_eq!(ask(&chain, &jane).await, Decision::Allow("because".to_owned()));
    }
    assert_eq!(world.hook.calls(), 1);
    world.answer(json!({"denied": true, "reason": "never"}));
    assert_eq!(
        ask(&chain, &User::system("joe", &[])).await,
        Decision::Deny("never".to_owned())
    );
    let admin = User::system("root", &["system:masters"]);
    assert_eq!(ask(&chain, &admin).await, Decision::Allow(String::new()));
    assert_eq!(
        world.hook.calls(),
        2,
        "nobody is asked about those who may do everything"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_cannot_wait_get_the_same_answer() {
    let world = World::new().await;
    world.answer(json!({"allowed": true}));
    let chain = world.chain("NoOpinion", "");
    let jane = User::system("jane", &[]);
    let decision = chain.authorize(&Attributes::resource(&jane, "get", "", "pods"));
    assert_eq!(decision, Decision::Allow(String::new()));
}

#[tokio::test]
async fn a_webhook_that_fails_or_contradicts_itself_never_allows() {
    let world = World::new().await;
    let jane = User::system("jane", &[]);
    let (open, closed) = (world.chain("NoOpinion", ""), world.chain("Deny", ""));
    type Reply = fn() -> Option<http::Response<http_body_util::Full<bytes::Bytes>>>;
    let answers: [Reply; 5] = [
        || {
            Some(reply(
                200,
                json!({"status": {"allowed": true, "denied": true}}).to_string(),
            ))
        },
        || Some(reply(200, "{}")),
        || Some(reply(401, "who are you")),
        || Some(reply(302, "elsewhere")),
        || None,
    ];
    for answer in answers {
        world.hook.answer(move |_, _| answer());
        assert_eq!(ask(&open, &jane).await, Decision::NoOpinion(String::new()));
        assert_eq!(ask(&closed, &jane).await, Decision::Deny(String::new()));
    }
    world.answer(json!({"allowed": true}));
    assert_eq!(
        ask(&open, &jane).await,
        Decision::Allow(String::new()),
        "failures are not remembered"
    );
}

#[tokio::test]
async fn conditions_keep_questions_from_a_webhook() {
    let world = World::new().await;
    world.answer(json!({"allowed": true}));
    let rest = "    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions:\n    \
                - expression: request.resourceAttributes.namespace == 'other'\n";
    let chain = world.chain("Deny", rest);
    let jane = User::system("jane", &[]);
    assert_eq!(ask(&chain, &jane).await, Decision::NoOpinion(String::new()));
    assert_eq!(world.hook.calls(), 0);
    // A condition that cannot be evaluated is a failure, and this webhook forbids on failures.
    let path = chain.decide(&Attributes::path(&jane, "get", "/metrics")).await;
    assert_eq!(path, Decision::Deny(String::new()));
}

#[tokio::test]
async fn a_changed_file_counts_and_a_broken_one_does_not() {
    let world = World::new().await;
    world.answer(json!({"allowed": true}));
    let chain = world.chain("Deny", "");
    let running = tokio::spawn(chain.clone().run());
    let path = world.directory.path().join("authorization.yaml");
    std::fs::write(&path, "kind: Nonsense\n").expect("a file");
    tokio::time::sleep(RELOAD_INTERVAL + Duration::from_millis(500)).await;
    assert!(chain.has_webhook());
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: AlwaysDeny, name: deny}]\n";
    std::fs::write(&path, text).expect("a file");
    let begun = Instant::now();
    while chain.has_webhook() {
        assert!(begun.elapsed() < PATIENCE, "the file was not loaded");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let decision = ask(&chain, &User::system("jane", &[])).await;
    assert_eq!(decision, Decision::NoOpinion("Everything is forbidden.".to_owned()));
    running.abort();
}

#[test]
fn a_chain_that_cannot_work_is_not_opened() {
    let missing = AuthorizationSource::File("/nowhere".into());
    assert!(AuthorizerChain::open(missing, local()).is_err());
    let abac = AuthorizationSource::Given(vec![AuthorizerSpec::Abac]);
    let error = AuthorizerChain::open(abac, local()).err().expect("no policies");
    assert_eq!(
        error.to_string(),
        "the authorizer ABAC needs --authorization-policy-file"
    );
}
