//! Serves a folder with the faults that a script describes: `ferofs-test-server FOLDER [ADDRESS
//! [COMMAND...]]`.
//!
//! Each COMMAND is a line of the script (see the module `script` of the library). Prints the
//! address on standard output. While it runs, `curl --data-binary 'latency 20ms'
//! http://ADDRESS/_control` changes what it does, and `/_control/counts` tells what it has done.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use ferofs_test_server::{Server, script};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("usage: ferofs-test-server FOLDER [ADDRESS [COMMAND...]]");
        return ExitCode::from(2);
    };
    let address = args.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let server = match Server::bind(&address) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("ferofs-test-server: {address}: {error}");
            return ExitCode::FAILURE;
        }
    };
    server.serve_folder(folder);
    for command in args {
        if let Err(problem) = script::execute(&server, &command) {
            eprintln!("ferofs-test-server: {problem}");
            return ExitCode::from(2);
        }
    }
    println!("{}", server.address());
    server.wait();
    ExitCode::SUCCESS
}
