package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// docLink is a doc link, [Name], [Type.Member] or [package.Name], also one that go/doc does not recognize.
	docLink = regexp.MustCompile(`(?:^|[\s(,;:"'/])\[\*?((?:[a-z][a-z0-9]*\.)?[A-Z]\w*(?:\.[A-Z]\w*)*)\](?:$|[\s).,;:"'/-])`)
	module  = regexp.MustCompile(`(?m)^module\s+(\S+)`)
)

// docChecker checks the doc links in the comments of exported names.
type docChecker struct {
	files    fs.FS
	fset     *token.FileSet
	packages map[string]*documented // by import path
}

// documented is a package, with the parser of its doc comments.
type documented struct {
	files  []*ast.File
	parser *comment.Parser
}

// checkDocs returns a line for each broken doc link in the Go files, those of tests left out.
func checkDocs(files fs.FS, names []string) (broken []string) {
	c := docChecker{files: files, fset: token.NewFileSet(), packages: map[string]*documented{}}
	byDir := map[string][]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return append(broken, fmt.Sprintf("%s: %v", name, err))
		}
		file, err := parser.ParseFile(c.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return append(broken, err.Error())
		}
		byDir[path.Dir(name)] = append(byDir[path.Dir(name)], file)
	}
	for dir, all := range byDir {
		importPath := c.importPath(dir)
		p, err := doc.NewFromFiles(c.fset, all, importPath, doc.PreserveAST)
		if err != nil {
			return append(broken, fmt.Sprintf("%s: %v", dir, err))
		}
		c.packages[importPath] = &documented{all, p.Parser()}
	}
	for _, p := range c.packages {
		for _, file := range p.files {
			for _, group := range exportedComments(file) {
				broken = append(broken, c.checkComment(p, group)...)
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// importPath returns the import path of a directory, by the go.mod in it or above it.
func (c *docChecker) importPath(dir string) string {
	for at := dir; ; at = path.Dir(at) {
		if text, err := fs.ReadFile(c.files, path.Join(at, "go.mod")); err == nil {
			if found := module.FindSubmatch(text); found != nil {
				return path.Join(string(found[1]), strings.TrimPrefix(strings.TrimPrefix(dir, at), "/"))
			}
		}
		if at == "." {
			return dir
		}
	}
}

// exportedComments returns the doc comments of a file that its users read: those of the package, of exported
// declarations, and of their exported fields and methods.
func exportedComments(file *ast.File) (groups []*ast.CommentGroup) {
	add := func(group *ast.CommentGroup) {
		if group != nil {
			groups = append(groups, group)
		}
	}
	exported := func(names ...*ast.Ident) bool { return slices.ContainsFunc(names, (*ast.Ident).IsExported) }
	add(file.Doc)
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if exported(decl.Name) {
				add(decl.Doc)
			}
		case *ast.GenDecl:
			any := false
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if exported(spec.Names...) {
						any = true
						add(spec.Doc)
					}
				case *ast.TypeSpec:
					if !exported(spec.Name) {
						continue
					}
					any = true
					add(spec.Doc)
					for _, member := range members(spec.Type) {
						if exported(member.Names...) {
							add(member.Doc)
						}
					}
				}
			}
			if any {
				add(decl.Doc)
			}
		}
	}
	return groups
}

// members returns the fields of a struct, or the methods of an interface.
func members(t ast.Expr) []*ast.Field {
	switch t := t.(type) {
	case *ast.StructType:
		return t.Fields.List
	case *ast.InterfaceType:
		return t.Methods.List
	}
	return nil
}

// checkComment returns a line for each broken link of a comment.
func (c *docChecker) checkComment(p *documented, group *ast.CommentGroup) (broken []string) {
	add := func(name string) {
		broken = append(broken, fmt.Sprintf("%s: [%s]: there is no such exported name", c.position(group, name), name))
	}
	for text := range texts(p.parser.Parse(group.Text()).Content) {
		switch text := text.(type) {
		case comment.Plain:
			for _, found := range docLink.FindAllStringSubmatch(string(text), -1) {
				add(found[1])
			}
		case *comment.DocLink:
			target := p
			if text.ImportPath != "" {
				target = c.packages[text.ImportPath]
			}
			if target != nil && text.Name != "" && !target.parser.LookupSym(text.Recv, text.Name) {
				var name strings.Builder
				for _, part := range text.Text {
					if plain, ok := part.(comment.Plain); ok {
						name.WriteString(string(plain))
					}
				}
				add(strings.TrimPrefix(name.String(), "*"))
			}
		}
	}
	return broken
}

// texts calls yield for each text of the blocks. Blocks of code have none.
func texts(blocks []comment.Block) func(yield func(comment.Text) bool) {
	return func(yield func(comment.Text) bool) {
		for _, block := range blocks {
			var all []comment.Text
			switch block := block.(type) {
			case *comment.Paragraph:
				all = block.Text
			case *comment.Heading:
				all = block.Text
			case *comment.List:
				for _, item := range block.Items {
					for text := range texts(item.Content) {
						if !yield(text) {
							return
						}
					}
				}
			}
			for _, text := range all {
				if !yield(text) {
					return
				}
			}
		}
	}
}

// position returns the place of a link, as file:line.
func (c *docChecker) position(group *ast.CommentGroup, name string) string {
	at := c.fset.Position(group.Pos())
	for _, line := range group.List {
		if strings.Contains(line.Text, "["+name+"]") || strings.Contains(line.Text, "[*"+name+"]") {
			at = c.fset.Position(line.Pos())
			break
		}
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}
