//go:build darwin || linux

package sqs

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
)

// A form is the body of a request in the query protocol.
type form struct{ url.Values }

// has reports whether a parameter exists, even if it is empty.
func (f form) has(name string) bool { return f.Values.Has(name) }

// optional returns a parameter, or nil if it does not exist.
func (f form) optional(name string) *string {
	if !f.has(name) {
		return nil
	}
	value := f.Get(name)
	return &value
}

// each calls do with the prefix of each item of a list or map, such as
// "Attributes.entry.1.".
func (f form) each(list string, do func(prefix string)) {
	for i := 1; ; i++ {
		prefix := list + "." + strconv.Itoa(i)
		if !f.startsWith(prefix) {
			return
		}
		do(prefix)
	}
}

func (f form) startsWith(prefix string) bool {
	if f.has(prefix) {
		return true
	}
	prefix += "."
	for name := range f.Values {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

// strings returns a map of strings.
func (f form) strings(name string) map[string]string {
	m := map[string]string{}
	f.each(name+".entry", func(prefix string) { m[f.Get(prefix+".key")] = f.Get(prefix + ".value") })
	return m
}

// attributes returns the message attributes after a prefix.
func (f form) attributes(prefix string) map[string]attributeValue {
	m := map[string]attributeValue{}
	f.each(prefix+"MessageAttributes.entry", func(p string) {
		m[f.Get(p+".Name")] = attributeValue{
			DataType:    f.optional(p + ".Value.DataType"),
			StringValue: f.optional(p + ".Value.StringValue"),
			BinaryValue: f.optional(p + ".Value.BinaryValue"),
		}
	})
	return m
}

// An answerXML is the result of an operation in the query protocol: a struct whose fields
// have the names of the elements; nil if there is none.
type answerXML any

// A queryOperation is an operation of SNS or STS. Its target is the name of the topic.
type queryOperation struct {
	target func(form) string
	run    func(*store, *call, form) (answerXML, *apiError)
}

// namespaces are the XML namespaces of answers, by the version of the API.
var namespaces = map[string]string{
	snsVersion: "http://sns.amazonaws.com/doc/2010-03-31/",
	stsVersion: "https://sts.amazonaws.com/doc/2011-06-15/",
}

const (
	snsVersion = "2010-03-31"
	stsVersion = "2011-06-15"
)

// query executes an operation of SNS or STS.
func (x *exchange) query(r *http.Request, body string) {
	values, err := url.ParseQuery(body)
	f := form{values}
	action, version := f.Get("Action"), f.Get("Version")
	op, ok := queryOperations[version][action]
	if err != nil || !ok {
		x.answerXML(action, version, nil, failure("InvalidAction", "The action %s is not valid for this web service.", action))
		return
	}
	x.begin(action, op.target(f))
	wrong := x.refusal(r)
	var answer answerXML
	if wrong == nil {
		answer, wrong = op.run(x.store, x.call, f)
	}
	x.finish()
	if wrong != nil && version == snsVersion {
		wrong = wrong.forSNS()
	}
	x.answerXML(action, version, answer, wrong)
}

var queryOperations = map[string]map[string]queryOperation{
	snsVersion: snsOperations,
	stsVersion: {"GetCallerIdentity": {func(form) string { return "" }, (*store).getCallerIdentity}},
}

type callerIdentity struct {
	Arn     string
	UserID  string `xml:"UserId"`
	Account string
}

// getCallerIdentity implements GetCallerIdentity of STS.
func (st *store) getCallerIdentity(c *call, _ form) (answerXML, *apiError) {
	return &callerIdentity{"arn:aws:iam::" + c.account + ":user/test", c.sender, c.account}, nil
}

func (x *exchange) answerXML(action, version string, answer answerXML, err *apiError) {
	out := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(out)
	out.Reset()
	encoder := xml.NewEncoder(out)
	id := x.w.Header().Get("X-Amzn-Requestid")
	root := xml.StartElement{Name: xml.Name{Local: action + "Response"}}
	namespace := []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: namespaces[version]}}
	status := http.StatusOK
	var failed error
	if err != nil {
		status, root.Name.Local, root.Attr = err.status, "ErrorResponse", namespace
		e := struct {
			Type, Code, Message string
		}{err.fault(), err.query, err.message}
		failed = encoder.EncodeElement(struct {
			Error     any
			RequestID string `xml:"RequestId"`
		}{e, id}, root)
	} else {
		root.Attr = namespace
		failed = encodeResult(encoder, root, action, answer, id)
	}
	if failed != nil {
		x.server.failed(failed)
		panic(http.ErrAbortHandler)
	}
	x.answer(status, "text/xml", out.Bytes())
}

// encodeResult writes an answer inside the elements that its action names.
func encodeResult(e *xml.Encoder, root xml.StartElement, action string, answer answerXML, id string) error {
	metadata := struct {
		RequestID string `xml:"RequestId"`
	}{id}
	if err := e.EncodeToken(root); err != nil {
		return err
	}
	if answer != nil {
		if err := e.EncodeElement(answer, xml.StartElement{Name: xml.Name{Local: action + "Result"}}); err != nil {
			return err
		}
	}
	if err := e.EncodeElement(metadata, xml.StartElement{Name: xml.Name{Local: "ResponseMetadata"}}); err != nil {
		return err
	}
	if err := e.EncodeToken(root.End()); err != nil {
		return err
	}
	return e.Flush()
}
