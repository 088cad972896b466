package main

import (
	"go/ast"
	"go/parser"
	"go/token"
)

// items are the exported items of a package.
type items struct {
	all    int
	fields map[string]int // of each exported struct and interface
}

// countItems counts those of the files of one package.
func countItems(files []string) (items, error) {
	n := items{fields: map[string]int{}}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return items{}, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type))) {
					n.all++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					n.addSpec(s)
				}
			}
		}
	}
	return n, nil
}

func (n *items) addSpec(s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				n.all++
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		n.all++
		var members *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			members = t.Fields
		case *ast.InterfaceType:
			members = t.Methods
		default:
			return
		}
		fields := 0
		for _, member := range members.List {
			for _, name := range member.Names { // none: it is embedded
				if name.IsExported() {
					fields++
				}
			}
		}
		n.all += fields
		n.fields[s.Name.Name] = fields
	}
}

// typeName returns the name of a receiver's type, or "".
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
