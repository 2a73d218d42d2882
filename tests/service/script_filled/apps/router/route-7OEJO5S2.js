import{b as t,e as o}from"./chunk-FPZF5OEQ.js";var p=({n:r})=>t("article",null,t("h1",null,"Station ",r),t("p",null,o(r)));export{p as default};
