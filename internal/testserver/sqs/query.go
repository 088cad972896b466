//go:build darwin || linux

package sqs

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/url"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/topics"
)

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
	f := api.Form{Values: values}
	action, version := f.Get("Action"), f.Get("Version")
	op, ok := queryOperations[version][action]
	if err != nil || !ok {
		x.answerXML(action, version, nil, api.Failure("InvalidAction", "The action %s is not valid for this web service.", action))
		return
	}
	x.begin(action, op.Target(f))
	wrong := x.refusal(r)
	var answer api.AnswerXML
	if wrong == nil {
		answer, wrong = op.Run(x.service.topics, x.call, f)
	}
	x.finish()
	if wrong != nil && version == snsVersion {
		wrong = wrong.ForSNS()
	}
	x.answerXML(action, version, answer, wrong)
}

var queryOperations = map[string]map[string]topics.Operation{
	snsVersion: topics.Operations,
	stsVersion: {"GetCallerIdentity": {Target: func(api.Form) string { return "" }, Run: getCallerIdentity}},
}

type callerIdentity struct {
	Arn     string
	UserID  string `xml:"UserId"`
	Account string
}

// getCallerIdentity implements GetCallerIdentity of STS.
func getCallerIdentity(_ *topics.Store, c *api.Call, _ api.Form) (api.AnswerXML, *api.Error) {
	return &callerIdentity{"arn:aws:iam::" + c.Account + ":user/test", c.Sender, c.Account}, nil
}

func (x *exchange) answerXML(action, version string, answer api.AnswerXML, err *api.Error) {
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
		status, root.Name.Local, root.Attr = err.Status, "ErrorResponse", namespace
		e := struct {
			Type, Code, Message string
		}{err.Fault(), err.Query, err.Message}
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
func encodeResult(e *xml.Encoder, root xml.StartElement, action string, answer api.AnswerXML, id string) error {
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
