package postgres

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// UnqualifiedNames returns the parts of an SQL text that the server looks up along
// search_path: calls, types, collations and relations of the catalogue without a schema, and
// operators that are not written as operator(pg_catalog.=). Any role that may create objects
// in a schema of the path can put its own in their place.
//
// It knows the SQL that this repository has, and refuses the rest: in doubt a text is to be
// written differently.
func UnqualifiedNames(text string) []string {
	c := nameCheck{tokens: sqlTokens(text)}
	c.run()
	return c.found
}

// UnqualifiedNamesInSource does the same for the statements in the Go files of a directory:
// their string literals that begin like one. The result has the position of each.
func UnqualifiedNamesInSource(dir string) (found []string, err error) {
	files := token.NewFileSet()
	statements := 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != dir && slices.Contains([]string{"test", "microsoft", "testdata", "sqlservertest"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !statement.MatchString(text) {
				return true
			}
			statements++
			for _, name := range UnqualifiedNames(text) {
				found = append(found, fmt.Sprintf("%s: %s", files.Position(literal.Pos()), name))
			}
			return true
		})
		return nil
	})
	if err == nil && statements == 0 {
		err = fmt.Errorf("%s has no statements", dir)
	}
	return found, err
}

var statement = regexp.MustCompile(`^\s*(select|insert into|update|delete from|with \w+ as|create (table|index|trigger|function)|comment on|do \$)\W`)

// sqlTokens splits a text into tokens, without comments. Texts in quotes keep these; a text in
// dollars, which is code, is replaced by its tokens.
func sqlTokens(text string) (tokens []string) {
	for text != "" {
		at := sqlToken.FindStringIndex(text)
		if at == nil {
			return append(tokens, text)
		}
		found := text[at[0]:at[1]]
		text = text[at[1]:]
		switch {
		case strings.HasPrefix(found, "--"):
		case strings.HasPrefix(found, "$") && strings.HasSuffix(found, "$") && len(found) > 1:
			code, after, closed := strings.Cut(text, found)
			if !closed {
				return append(tokens, found)
			}
			tokens, text = append(append(tokens, ";"), sqlTokens(code)...), after
		default:
			tokens = append(tokens, found)
		}
	}
	return tokens
}

var sqlToken = regexp.MustCompile(`--[^\n]*|\$[a-z_]*\$|\$\d+|'(?:[^']|'')*'|"(?:[^"]|"")*"|[\pL_][\pL\d_]*|\d[\d.]*|::|:=|\.\.|[-+*/<>=~!@#%^&|?]+|[^\s]`)

type nameCheck struct {
	tokens []string
	found  []string
}

// token returns a token in lower case, or "" outside of the text.
func (c *nameCheck) token(i int) string {
	if i < 0 || i >= len(c.tokens) {
		return ""
	}
	return strings.ToLower(c.tokens[i])
}

func (c *nameCheck) report(i int, reason string) {
	c.found = append(c.found, fmt.Sprintf("%s in %q", reason, strings.Join(c.tokens[max(0, i-6):min(len(c.tokens), i+7)], " ")))
}

// beforeParenthesis are the words that may stand before a parenthesis and call no function:
// parts of the grammar, and functions that the grammar looks up in pg_catalog.
var beforeParenthesis = strings.Fields(`select insert into values from where and or not on when then else as case array any all exists with unique key conflict
	coalesce greatest least extract overlay varchar operator set using by index check returning ordinality filter`)

// keywordTypes are the types that the grammar itself looks up.
var keywordTypes = strings.Fields(`bigint int integer smallint boolean interval timestamp time varchar double real numeric decimal bit char`)

// namedTypes are types that are looked up like any name.
var namedTypes = strings.Fields(`text uuid bytea timestamptz regclass regtype regnamespace regproc regprocedure regrole xid xid8 float4 float8 int2 int4 int8 bool json jsonb record trigger`)

// comparesUnseen are words that look up an operator which is not written.
var comparesUnseen = strings.Fields(`in nullif between like ilike similar distinct`)

func (c *nameCheck) run() {
	var assigns []bool // by depth of parentheses: a list of assignments
	depth := 0
	at := func() *bool {
		for len(assigns) <= depth {
			assigns = append(assigns, false)
		}
		return &assigns[depth]
	}
	for i := range c.tokens {
		word, before, after := c.token(i), c.token(i-1), c.token(i+1)
		switch {
		case word == "(":
			depth++
			*at() = before == "with"
		case word == ")":
			depth = max(depth-1, 0)
		case word == "set":
			*at() = true
		case slices.Contains([]string{"from", "where", "returning", ";"}, word):
			*at() = false
		}
		switch first := word[0]; {
		case strings.ContainsRune("-+*/<>=~!@#%^&|?", rune(first)):
			c.operator(i, *at())
		case first == '\'' || first == '"' || first == '$':
		case before == ".", before == "%": // a part of a qualified name, or a verb of format()
		case word == "collate" && after != "pg_catalog":
			c.report(i, "collation without a schema")
		case before == "::" && after != "." && !slices.Contains(keywordTypes, word):
			c.report(i, "type without a schema")
		case word == "trigger" && (before == "create" || before == "drop"):
		case before != "::" && after != "." && slices.Contains(namedTypes, word):
			c.report(i, "type without a schema")
		case word == "distinct" && before == "select": // compares by the type's own operators
		case slices.Contains(comparesUnseen, word) && !(word == "in" && c.token(i-2) == "for"):
			c.report(i, "a comparison whose operator cannot be qualified")
		case word == "case" && after != "when":
			c.report(i, "a comparison whose operator cannot be qualified")
		case strings.HasPrefix(word, "pg_") && word != "pg_catalog":
			c.report(i, "name of the catalogue without a schema")
		case after == "(" && isWord(word) && !slices.Contains(beforeParenthesis, word) && before != "as" && !c.unnests(i): // not the columns of an alias
			c.report(i, "call without a schema")
		}
	}
}

// unnests reports whether a call is one of unnest with several arrays, which the grammar
// replaces by calls of pg_catalog.unnest. It has no such function.
func (c *nameCheck) unnests(i int) bool {
	if c.token(i) != "unnest" {
		return false
	}
	depth := 0
	for i++; i < len(c.tokens); i++ {
		switch c.token(i) {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				return false
			}
		case ",":
			if depth == 1 {
				return true
			}
		}
	}
	return false
}

func isWord(token string) bool { return token != "" && (token[0] == '_' || token[0] >= 'a') }

// operator reports an operator without a schema.
func (c *nameCheck) operator(i int, assigns bool) {
	word, before, after := c.token(i), c.token(i-1), c.token(i+1)
	switch {
	case before == "." && c.token(i-2) == "pg_catalog" && c.token(i-4) == "operator":
	case word == "*" && (before == "select" || before == "(" || before == "." || before == ","): // all columns, all rows
	case word == "=" && assigns && isWord(c.token(i-1)) && slices.Contains([]string{",", "set", "("}, c.token(i-2)):
	case word == "=" && assigns && before == "search_path": // of a function
	case word == "-" && after != "" && after[0] >= '0' && after[0] <= '9' && slices.Contains([]string{"(", ",", "="}, before): // a negative number
	case strings.Contains(word, "%"): // a verb of fmt or of format()
	default:
		c.report(i, "operator without a schema")
	}
}
