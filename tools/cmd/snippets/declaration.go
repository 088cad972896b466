package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// declarations returns the named top-level declarations of a Go file, with their comments, in the order of the names. A
// method is called Type.Method.
func declarations(content []byte, file string, names []string) (string, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", fmt.Errorf("%s has no region named %s, and cannot be read for declarations: %w", file, strings.Join(names, ","), err)
	}
	found := map[string]string{}
	for _, declaration := range parsed.Decls {
		begin := declaration.Pos()
		var comment *ast.CommentGroup
		var declared []string
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			comment, declared = d.Doc, []string{functionName(d)}
		case *ast.GenDecl:
			comment, declared = d.Doc, generalNames(d)
		}
		if comment != nil {
			begin = comment.Pos()
		}
		code := string(content[files.Position(begin).Offset:files.Position(declaration.End()).Offset]) + "\n"
		for _, name := range declared {
			found[name] = code
		}
	}
	var parts []string
	for _, name := range names {
		code, ok := found[name]
		if !ok {
			return "", fmt.Errorf("%s has no region and no declaration named %s", file, name)
		}
		parts = append(parts, code)
	}
	return strings.Join(parts, "\n"), nil
}

// functionName returns the name of a function, or Type.Method.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) != 1 {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// generalNames returns the names that a type, const or var declaration declares.
func generalNames(d *ast.GenDecl) (names []string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, s.Name.Name)
		case *ast.ValueSpec:
			for _, name := range s.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
