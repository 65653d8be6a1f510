//! Rebuilds the library when a migration is added: the migrations are embedded by a macro, and cargo doesn't see
//! a new file in the directory it reads.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
