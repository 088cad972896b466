package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"slices"
	"strings"
)

// items are the exported items of a package.
type items struct {
	all    int
	fields map[string]int // of each exported struct and interface
	lines  []string       // one for each item and embedded type, sorted
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
				n.addFunc(d)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					n.addSpec(d.Tok, s)
				}
			}
		}
	}
	slices.Sort(n.lines)
	return n, nil
}

// add counts an item.
func (n *items) add(line string) {
	n.all++
	n.lines = append(n.lines, line)
}

func (n *items) addFunc(d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	signature := strings.TrimPrefix(source(d.Type), "func")
	switch {
	case d.Recv == nil:
		n.add("func " + d.Name.Name + signature)
	case ast.IsExported(typeName(d.Recv.List[0].Type)):
		n.add("method (" + source(d.Recv.List[0].Type) + ") " + d.Name.Name + signature)
	}
}

func (n *items) addSpec(kind token.Token, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for i, name := range s.Names {
			if !name.IsExported() {
				continue
			}
			line := kind.String() + " " + name.Name
			if s.Type != nil {
				line += " " + source(s.Type)
			}
			if i < len(s.Values) {
				if value, ok := s.Values[i].(*ast.BasicLit); ok { // others may know it: the name of a header
					line += " = " + value.Value
				}
			}
			n.add(line)
		}
	case *ast.TypeSpec:
		n.addType(s)
	}
}

func (n *items) addType(s *ast.TypeSpec) {
	if !s.Name.IsExported() {
		return
	}
	line := "type " + s.Name.Name
	if s.TypeParams != nil {
		parameters := make([]string, len(s.TypeParams.List))
		for i, p := range s.TypeParams.List {
			names := make([]string, len(p.Names))
			for j, name := range p.Names {
				names[j] = name.Name
			}
			parameters[i] = strings.Join(names, ", ") + " " + source(p.Type)
		}
		line += "[" + strings.Join(parameters, ", ") + "]"
	}
	if s.Assign.IsValid() {
		line += " ="
	}
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		line, members = line+" struct", t.Fields
	case *ast.InterfaceType:
		line, members = line+" interface", t.Methods
	default:
		n.add(line + " " + source(s.Type))
		return
	}
	n.add(line)
	n.fields[s.Name.Name] = 0
	for _, member := range members.List {
		if len(member.Names) == 0 {
			n.lines = append(n.lines, line+", embeds "+source(member.Type))
		}
		for _, name := range member.Names {
			if name.IsExported() {
				n.fields[s.Name.Name]++
				n.add(line + ", " + name.Name + " " + strings.TrimPrefix(source(member.Type), "func"))
			}
		}
	}
}

// source returns the code of a node, on one line.
func source(node ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), node); err != nil {
		panic(err) // unreachable: it was parsed
	}
	return strings.Join(strings.Fields(b.String()), " ")
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
