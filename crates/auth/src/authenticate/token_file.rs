//! The static token file: lines of `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::User;

/// Tokens with their users. Changes of the file need a restart, as they do upstream.
#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<String, Arc<User>>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenFileError {
    #[error("line {line} of the token file must have at least 3 columns (token, user name, user uid), found {columns}")]
    TooFewColumns { line: usize, columns: usize },
    #[error("line {line} of the token file has a quote that is not closed or not at the edge of a column")]
    Quote { line: usize },
}

impl TokenFile {
    /// Parses the file's text. Lines without a token are skipped; of a token given twice the last line counts.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if line.trim().is_empty() {
                continue;
            }
            let columns = columns(line).ok_or(TokenFileError::Quote { line: number })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::TooFewColumns {
                    line: number,
                    columns: columns.len(),
                });
            };
            if token.is_empty() {
                tracing::warn!(line = number, "Skipped a line of the token file that has no token");
                continue;
            }
            let groups: Vec<&str> = rest
                .first()
                .map(|groups| groups.split(',').collect())
                .unwrap_or_default();
            let mut user = User::new(name, &groups).authenticated();
            user.uid = uid.clone();
            if users.insert(token.clone(), Arc::new(user)).is_some() {
                tracing::warn!(
                    line = number,
                    "The token file has the same token twice; the later line is used"
                );
            }
        }
        Ok(TokenFile { users })
    }

    pub fn user(&self, token: &str) -> Option<Arc<User>> {
        self.users.get(token).cloned()
    }
}

/// The columns of one CSV line; in a quoted column `""` is a quote.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let mut column = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let end = quoted.find('"')?;
                column.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix('"') {
                    Some(more) => {
                        column.push('"');
                        quoted = more;
                    }
                    None => break,
                }
            }
            rest = quoted;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            column.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        columns.push(column);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Some(columns),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_a_token_a_user_and_groups() {
        let file = TokenFile::parse("secret,admin,1,\"system:masters,ops\"\nother,jane,2\n\n").unwrap();
        let admin = file.user("secret").unwrap();
        assert_eq!((admin.name.as_str(), admin.uid.as_str()), ("admin", "1"));
        assert_eq!(admin.groups, ["system:masters", "ops", "system:authenticated"]);
        assert_eq!(file.user("other").unwrap().groups, ["system:authenticated"]);
        assert_eq!(file.user(""), None);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let few = TokenFile::parse("secret,admin\n").unwrap_err();
        assert_eq!(few, TokenFileError::TooFewColumns { line: 1, columns: 2 });
        assert_eq!(
            TokenFile::parse("a,b,c,\"d\n").unwrap_err(),
            TokenFileError::Quote { line: 1 }
        );
    }
}
