package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
)

// noNames are names that the glossary rules out: adverbs, prepositions and pronouns, and limits that are not called max or
// min. They are unexported names as a whole: lockedUntil is a name.
var noNames = regexp.MustCompile(`^(again|already|apart|away|enough|ever|instead|least|most|nobody|of|otherwise|some|soon|still|until|what|who|whoever|(least|most)[A-Z]\w*)$`)

// checkNames returns a line for each of these names in the Go files, where it is first used in the file.
func checkNames(files fs.FS, names []string) (problems []string, err error) {
	for _, name := range names {
		if path.Ext(name) != ".go" {
			continue
		}
		text, err := read(files, name)
		if err != nil {
			return nil, err
		}
		var s scanner.Scanner
		set := token.NewFileSet()
		s.Init(set.AddFile(name, set.Base(), len(text)), text, nil, 0)
		seen := map[string]bool{}
		for {
			pos, tok, word := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok == token.IDENT && noNames.MatchString(word) && !seen[word] {
				seen[word] = true
				problems = append(problems, fmt.Sprintf("%v: the name %s says little; use a noun or a verb, and max or min for a limit", set.Position(pos), word))
			}
		}
	}
	return problems, nil
}
