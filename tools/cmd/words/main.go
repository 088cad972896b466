// Command words counts turns of speech that the glossary (docs/contributing/glossary.md) rules out, in the comments and strings of
// Go files and in Markdown files. tools/words.txt has how many there are of each: more of them than that is an error, so that
// they become fewer. With -w it writes the counts there; it never writes a larger one. It also refuses names in Go files that
// the glossary rules out, such as until and mostBytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const counted = "tools/words.txt"

func main() {
	write := flag.Bool("w", false, "write the counts to "+counted+", where they are lower")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	listed, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.go", "*.md").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	text, err := os.ReadFile(counted)
	if err != nil {
		return err
	}
	limits, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", counted, err)
	}
	found, err := count(os.DirFS("."), strings.Fields(string(listed)))
	if err != nil {
		return err
	}
	odd, err := checkNames(os.DirFS("."), strings.Fields(string(listed)))
	if err != nil {
		return err
	}
	problems := append(compare(limits, found), odd...)
	for _, p := range problems {
		fmt.Println(p)
	}
	if write {
		if err := os.WriteFile(counted, []byte(format(lower(limits, found))), 0o644); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("there are more of these turns than before, or names that are ruled out; docs/contributing/glossary.md says how to write instead")
	}
	return nil
}
