package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const example = `package snippets

func Example() {
	// snippet: policy
	if true {

		retry()
	}
	// end
}

func retry() {}
`

func TestRun(t *testing.T) {
	tests := map[string]struct {
		doc  string
		want string // a part of the only problem, "" for none
	}{
		"a marked block equals its region": {
			doc: "Text.\n\n<!-- snippet: docs/example.go#policy -->\n\n```go\nif true {\n\n\tretry()\n}\n```\n",
		},
		"a marked block in a list": {
			doc: "1. Text.\n\n   <!-- snippet: docs/example.go#policy -->\n   ```go\n   if true {\n\n   \tretry()\n   }\n   ```\n",
		},
		"a marked block that is a whole file": {
			doc: "<!-- snippet: docs/example.go -->\n```go\n" + example + "```\n",
		},
		"a marked block that is a declaration": {
			doc: "<!-- snippet: docs/example.go#retry -->\n```go\nfunc retry() {}\n```\n",
		},
		"a marked block that drifted": {
			doc:  "\n<!-- snippet: docs/example.go#policy -->\n```go\nif false {\n}\n```\n",
			want: "doc.md:3: differs from docs/example.go#policy",
		},
		"a region that does not exist": {
			doc:  "<!-- snippet: docs/example.go#police -->\n```go\n```\n",
			want: "doc.md:2: docs/example.go has no region and no declaration named police",
		},
		"a file that does not exist": {
			doc:  "<!-- snippet: docs/sample.go#policy -->\n```go\n```\n",
			want: "sample.go: no such file",
		},
		"a file that is never compiled": {
			doc:  "<!-- snippet: docs/ignored.go#policy -->\n```go\nretry()\n```\n",
			want: "docs/ignored.go is never compiled",
		},
		"a file outside the repository": {
			doc:  "<!-- snippet: ../example.go#policy -->\n```go\n```\n",
			want: "outside the repository",
		},
		"a marker before text": {
			doc:  "<!-- snippet: docs/example.go#policy -->\ntext\n\n```text\n```\n",
			want: "doc.md:1: no fenced block follows",
		},
		"a marker at the end": {
			doc:  "\n<!-- snippet: docs/example.go#policy -->\n",
			want: "doc.md:2: no fenced block follows",
		},
		"a go block without marker or package clause": {
			doc:  "```go\nretry()\n```\n",
			want: "doc.md:1: needs a snippet marker, or a package clause",
		},
		"a whole file that compiles": {
			doc: "```go\n// Comment.\npackage main\n\nimport \"example.com/repo/docs\"\n\nfunc main() { snippets.Example() }\n```\n",
		},
		"a whole test that compiles": {
			doc: "```go\npackage x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n```\n",
		},
		"a whole file that does not compile": {
			doc:  "Text.\n\n```go\npackage main\n\nfunc main() { undefined() }\n```\n",
			want: "doc.md:6:15: undefined: undefined",
		},
		"a whole test that does not compile": {
			doc:  "```go\npackage x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { undefined() }\n```\n",
			want: "doc.md:6:28: undefined: undefined",
		},
		"a whole file that does not parse": {
			doc:  "Text.\n\n```go\npackage main\n\nfunc main() {\n```\n",
			want: "doc.md:7:1: syntax error",
		},
		"blocks in other languages":     {doc: "```sh\nmake\n```\n\n    indented code\n\n```\nplain\n```\n"},
		"a go block shown in a block":   {doc: "````markdown\n<!-- snippet: x.go#y -->\n```go\nretry()\n```\n````\n"},
		"a block that the file cuts":    {doc: "```text\nno end"},
		"a block fenced with tildes":    {doc: "~~~go\nretry()\n~~~\n", want: "doc.md:1: needs a snippet marker"},
		"two blocks, the second is bad": {doc: "```sh\n```\n```go\nretry()\n```\n", want: "doc.md:3: needs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := repository(t, tt.doc)
			problems, err := run(root, false)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.want == "" && len(problems) > 0:
				t.Errorf("problems: %q", problems)
			case tt.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], tt.want)):
				t.Errorf("problems: %q, want one with %q", problems, tt.want)
			}
		})
	}
}

func TestRewrite(t *testing.T) {
	const (
		before = "Text.\n\n- item\n  <!-- snippet: docs/example.go#policy -->\n  ```go\n  old\n  ```\n\nMore.\n" +
			"<!-- snippet: docs/example.go#policy -->\n```go\n```\nEnd.\n"
		after = "Text.\n\n- item\n  <!-- snippet: docs/example.go#policy -->\n  ```go\n  if true {\n\n  \tretry()\n  }\n  ```\n\nMore.\n" +
			"<!-- snippet: docs/example.go#policy -->\n```go\nif true {\n\n\tretry()\n}\n```\nEnd.\n"
	)
	root := repository(t, before)
	for range 2 { // the second time there is nothing to do
		problems, err := run(root, true)
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		got, err := os.ReadFile(filepath.Join(root, "doc.md"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != after {
			t.Fatalf("rewritten:\n%s\nwant:\n%s", got, after)
		}
	}
}

func TestDeclarations(t *testing.T) {
	const file = `// Package f.
package f

// T is a type.
type T struct{ a int }

// Close closes.
func (t *T) Close() {
	// Inside.
}

// f does it.
func f() {}

const (
	a, b = 1, 2
)
`
	tests := map[string]struct{ names, want, err string }{
		"with its comment":       {names: "f", want: "// f does it.\nfunc f() {}\n"},
		"several, in that order": {names: "f,T", want: "// f does it.\nfunc f() {}\n\n// T is a type.\ntype T struct{ a int }\n"},
		"a method":               {names: "T.Close", want: "// Close closes.\nfunc (t *T) Close() {\n\t// Inside.\n}\n"},
		"a group":                {names: "b", want: "const (\n\ta, b = 1, 2\n)\n"},
		"a method without type":  {names: "Close", err: "no declaration named Close"},
		"one that is missing":    {names: "f,g", err: "no declaration named g"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := declarations([]byte(file), "f.go", strings.Split(tt.names, ","))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("declarations() = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := declarations([]byte("not Go"), "f.go", []string{"f"}); err == nil {
		t.Error("what is not Go was read")
	}
}

func TestCut(t *testing.T) {
	tests := map[string]struct{ content, want, err string }{
		"blank lines keep nothing of the indent": {
			content: "\t\t// snippet: r\n\t\ta\n\n\t\t\tb\n\t\t// end\n",
			want:    "a\n\n\tb\n",
		},
		"an end outside a region is a comment": {
			content: "// end\n// snippet: r\na\n// end\n// end\n",
			want:    "a\n",
		},
		"blank lines around a region": {
			content: "// snippet: r\n\nfunc f() {\n\n\tg()\n}\n\n// end\n",
			want:    "func f() {\n\n\tg()\n}\n",
		},
		"a region of Python": {
			content: "# snippet: r\ndef f():\n    # a comment\n    g()\n# end\n",
			want:    "def f():\n    # a comment\n    g()\n",
		},
		"no such region":             {content: "// snippet: s\n// end\n"},
		"a region that does not end": {content: "// snippet: r\na\n", err: "has no end"},
		"a region that is there twice": {
			content: "// snippet: r\n// end\n// snippet: r\n// end\n",
			err:     "two regions",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found, err := cut(tt.content, "f.go", "r")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want || found != (tt.want != "") {
				t.Errorf("cut() = %q, %t, %v, want %q", got, found, err, tt.want)
			}
		})
	}
}

// repository makes a module with a source of snippets and one document.
func repository(t *testing.T, doc string) (root string) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	root = t.TempDir()
	for name, content := range map[string]string{
		"go.mod":          "module example.com/repo\n\ngo 1.26\n",
		"docs/example.go": example,
		"docs/ignored.go": "//go:build ignore\n\n" + example,
		"doc.md":          doc,
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
