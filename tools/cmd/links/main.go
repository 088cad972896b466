// Command links checks the relative links of the Markdown files that git knows: each must lead to a file, and to a
// heading if it names one. It also checks the doc links (names in brackets) in the comments of exported Go names: each
// must name an exported name of the package, or of another package of the repository. It prints the links that do not,
// and exits with 1 if there are any. Links to other sites are not checked: their state is not a property of a commit.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	files := os.DirFS(".")
	var broken []string
	for pattern, check := range map[string]func(fs.FS, []string) []string{"*.md": check, "*.go": checkDocs} {
		names, err := list(files, pattern)
		if err != nil {
			fmt.Fprintln(os.Stderr, "links: git ls-files:", err)
			os.Exit(1)
		}
		broken = append(broken, check(files, names)...)
	}
	slices.Sort(broken)
	for _, line := range broken {
		fmt.Println(line)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}

// list returns the files that git knows and that have not been deleted.
func list(files fs.FS, pattern string) ([]string, error) {
	listed, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern).Output()
	names := slices.DeleteFunc(strings.Fields(string(listed)), func(name string) bool {
		_, err := fs.Stat(files, name)
		return errors.Is(err, fs.ErrNotExist)
	})
	return names, err
}
