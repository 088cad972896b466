package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A file is a block that is a whole Go file.
type file struct {
	document string
	line     int // of its first line in the document, from 1
	text     string
}

// startsWithPackage reports whether the text is a whole file.
func startsWithPackage(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
	return err == nil
}

// compile builds every file as a separate package, in a directory beside its document that exists only in the go
// command's overlay, and returns the messages of the compiler. Lines are those of the document.
func compile(root string, files []file) (problems []string, err error) {
	if len(files) == 0 {
		return nil, nil
	}
	temp, err := os.MkdirTemp("", "snippets")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}

	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(temp, "overlay.json")}
	for i, f := range files {
		document, err := filepath.Abs(f.document)
		if err != nil {
			return nil, err
		}
		text := filepath.Join(temp, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(text, fmt.Appendf(nil, "//line %s:%d:1\n%s", document, f.line, f.text), 0o600); err != nil {
			return nil, err
		}
		dir := filepath.Join(filepath.Dir(document), fmt.Sprintf("snippet%d", i))
		overlay.Replace[filepath.Join(dir, "snippet.go")] = text
		args = append(args, dir)
	}
	config, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(temp, "overlay.json"), config, 0o600); err != nil {
		return nil, err
	}

	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		for line := range strings.Lines(strings.ReplaceAll(string(out), root+string(filepath.Separator), "")) {
			if !strings.HasPrefix(line, "# ") { // the name of a package that exists only in the overlay
				problems = append(problems, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "./"))
			}
		}
		return problems, nil
	}
	return nil, err
}
