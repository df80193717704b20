import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-control-regex": "off",
      "no-unused-vars": ["error", { ignoreRestSiblings: true }],
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-script-url": "error",
      "no-shadow": "error",
      "no-implicit-coercion": "error",
      "no-console": "error",
      "max-lines": ["error", 400],
    },
  },
];
