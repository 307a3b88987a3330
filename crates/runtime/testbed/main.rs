//! What the integration tests run as supervisor, and as the built-in image: the part of Karve's binary that this
//! crate needs, and the attacks that a hostile container would make.

mod attacks;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(runtime::supervisor::SUBCOMMAND) => runtime::supervisor::main(args),
        Some("pause") => loop {
            std::thread::park();
        },
        Some("serve") => serve(),
        Some("attack-exe") => attacks::overwrite_program(),
        Some("attack-newcomers") => attacks::watch_newcomers(),
        other => {
            eprintln!("the testbed knows no command {other:?}");
            ExitCode::from(2)
        }
    }
}

/// Answers every connection to port 8080 with one line.
fn serve() -> ExitCode {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:8080").expect("the port is free in a new pod");
    println!("listening");
    for connection in listener.incoming().flatten() {
        let _ = { connection }.write_all(b"pong\n");
    }
    ExitCode::SUCCESS
}
