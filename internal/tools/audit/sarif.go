package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The parts of SARIF 2.1.0 that a report uses.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID          string             `json:"id"`
		Description sarifText          `json:"shortDescription"`
		Help        sarifText          `json:"help"`
		Default     sarifConfiguration `json:"defaultConfiguration"`
	}
	sarifConfiguration struct {
		Level Severity `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        Severity          `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Logical []sarifLogicalLocation `json:"logicalLocations"`
	}
	sarifLogicalLocation struct {
		Name          string `json:"name"`
		QualifiedName string `json:"fullyQualifiedName"`
		Kind          string `json:"kind"`
	}
)

// sarifOf returns a report as SARIF. Its levels are our severities. An object is a logical location, since it
// has no file.
func sarifOf(r Report) sarifLog {
	run := sarifRun{Tool: sarifTool{Driver: sarifDriver{Name: "coppice audit"}}, Results: []sarifResult{}}
	index := make(map[Code]int)
	for n, rule := range Rules() {
		index[rule.Code] = n
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: string(rule.Code), Description: sarifText{rule.Title}, Help: sarifText{rule.Suggestion}, Default: sarifConfiguration{rule.Severity},
		})
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		qualified := f.Object.String()
		if f.Object.Namespace != "" {
			qualified = f.Object.Namespace + "/" + qualified
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: string(f.Code), RuleIndex: index[f.Code], Level: f.Severity, Message: sarifText{f.Message},
			Locations:    []sarifLocation{{Logical: []sarifLogicalLocation{{Name: f.Object.Name, QualifiedName: qualified, Kind: "resource"}}}},
			Fingerprints: map[string]string{"coppice/v1": f.fingerprint()},
		})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

// fingerprint identifies a finding across runs, by the same fields as a baseline.
func (f *Finding) fingerprint() string {
	k := f.known()
	fields := []string{string(k.Code), k.Namespace, k.Object, k.Owner}
	if k.Finalizer != "" { // without one, the fingerprint stays that of older versions
		fields = append(fields, k.Finalizer)
	}
	sum := sha256.Sum256([]byte(strings.Join(fields, "\n")))
	return hex.EncodeToString(sum[:16])
}
